# libheadrace.so from the objects of the static library, which the Python module has position
# independent: a link more, no compile. It exports what headrace.map names.
if(APPLE OR WIN32)
  message(FATAL_ERROR "HEADRACE_SHARED needs a linker for ELF, which knows version scripts")
endif()

set(headrace_abi ${PROJECT_VERSION_MAJOR})
if(PROJECT_VERSION_MAJOR EQUAL 0)  # where every minor version may change the interface
  set(headrace_abi 0.${PROJECT_VERSION_MINOR})
endif()
set(version_script ${PROJECT_BINARY_DIR}/headrace.map)
configure_file(cmake/headrace.map.in ${version_script} @ONLY)

add_library(headrace_shared SHARED $<TARGET_OBJECTS:headrace>)
set_target_properties(headrace_shared PROPERTIES
  OUTPUT_NAME headrace EXPORT_NAME headrace LINKER_LANGUAGE CXX
  VERSION ${PROJECT_VERSION} SOVERSION ${headrace_abi} LINK_DEPENDS ${version_script})
target_compile_features(headrace_shared INTERFACE cxx_std_20)
target_include_directories(headrace_shared
  INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
            $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(headrace_shared PRIVATE $<BUILD_INTERFACE:${headrace_link_dependencies}>)
# Data are left to the dynamic linker: a program has its own copy of DType::float32.
target_link_options(headrace_shared PRIVATE
  LINKER:--version-script=${version_script} LINKER:-Bsymbolic-functions)
if(NOT sanitize_flags)  # whose functions the program brings
  target_link_options(headrace_shared PRIVATE LINKER:--no-undefined)
endif()
if(HEADRACE_WITH_CUDA)
  target_sources(headrace_shared PRIVATE $<TARGET_OBJECTS:headrace_cuda>)
  target_link_libraries(headrace_shared PRIVATE $<BUILD_INTERFACE:CUDA::cudart_static>)
endif()
