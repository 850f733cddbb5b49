include(CMakePackageConfigHelpers)

# headrace::headrace is the shared library where there is one; headrace::headrace_static, the
# component "static", is always the other.
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/headrace)
if(HEADRACE_SHARED)
  set_target_properties(headrace PROPERTIES EXPORT_NAME headrace_static)
  install(TARGETS headrace EXPORT headraceStaticTargets
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT cpp)
  install(TARGETS headrace_shared EXPORT headraceTargets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT cpp)
  install(EXPORT headraceStaticTargets NAMESPACE headrace:: DESTINATION ${package_dir} COMPONENT cpp)
else()
  install(TARGETS headrace EXPORT headraceTargets
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT cpp)
endif()
install(DIRECTORY include/headrace DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT cpp
  FILES_MATCHING PATTERN "*.h")
install(EXPORT headraceTargets NAMESPACE headrace:: DESTINATION ${package_dir} COMPONENT cpp)

configure_package_config_file(cmake/headraceConfig.cmake.in headraceConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(headraceConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${CMAKE_CURRENT_BINARY_DIR}/headraceConfig.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/headraceConfigVersion.cmake
  cmake/dependencies.cmake
  DESTINATION ${package_dir} COMPONENT cpp)

# For builds that know pkg-config and not CMake. At installation: the prefix is that of then.
set(headrace_pc_requires "libzstd liblz4 blosc libdeflate zlib liblzma snappy libisal fmt libcrypto")
set(headrace_pc_libs "-lboost_context -lbz2")
if(LIBURING_FOUND)
  string(APPEND headrace_pc_requires " liburing")
endif()
foreach(found ZFP AEC)
  if(${found}_LIBRARY AND ${found}_INCLUDE_DIR)
    string(TOLOWER " -l${found}" flag)
    string(APPEND headrace_pc_libs "${flag}")
  endif()
endforeach()
if(HEADRACE_WITH_CUDA)
  string(APPEND headrace_pc_libs " ${CUDAToolkit_LIBRARY_DIR}/libcudart_static.a -lrt")
endif()
string(APPEND headrace_pc_libs " -lstdc++ -lm -lpthread -ldl")

# Requires.private would ask for the packages even of who links the shared library, so the flags of
# these stand among the libraries.
set(headrace_pc_private "")
foreach(found ZSTD LZ4 BLOSC DEFLATE ZLIB LZMA SNAPPY ISAL LIBURING)
  list(APPEND headrace_pc_private ${${found}_LDFLAGS})
endforeach()
list(APPEND headrace_pc_private -lfmt -lcrypto ${headrace_pc_libs})
list(JOIN headrace_pc_private " " headrace_pc_private)

if(HEADRACE_SHARED)
  set(headrace_pc_files headrace_shared headrace)
  set(headrace_pc_static headrace-static)
else()
  set(headrace_pc_files headrace)
  set(headrace_pc_static headrace)
endif()
string(CONFIGURE [=[
set(PROJECT_VERSION "@PROJECT_VERSION@")
set(CMAKE_INSTALL_LIBDIR "@CMAKE_INSTALL_LIBDIR@")
set(CMAKE_INSTALL_INCLUDEDIR "@CMAKE_INSTALL_INCLUDEDIR@")
set(headrace_pc_requires "@headrace_pc_requires@")
set(headrace_pc_libs "@headrace_pc_libs@")
set(headrace_pc_private "@headrace_pc_private@")
set(headrace_pc_static "@headrace_pc_static@")
foreach(template @headrace_pc_files@)
  set(name headrace)
  if(template STREQUAL "headrace")
    set(name ${headrace_pc_static})
  endif()
  configure_file("@PROJECT_SOURCE_DIR@/cmake/${template}.pc.in" "@PROJECT_BINARY_DIR@/${name}.pc" @ONLY)
  file(INSTALL "@PROJECT_BINARY_DIR@/${name}.pc"
    DESTINATION "${CMAKE_INSTALL_PREFIX}/@CMAKE_INSTALL_LIBDIR@/pkgconfig")
endforeach()
]=] write_pc @ONLY)
install(CODE "${write_pc}" COMPONENT cpp)
