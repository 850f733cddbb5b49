# kernel_tests once more, with a note of what each block of a kernel touches (simt/shadow.h), for
# `make test-shadow`. The objects here come before those of the library, which are built without.
file(GLOB_RECURSE shadowed_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/kernels/*.cpp
  ${CMAKE_CURRENT_SOURCE_DIR}/shadow/*.cpp)
list(APPEND shadowed_sources ${kernel_test_sources})
add_library(shadowed_kernels OBJECT EXCLUDE_FROM_ALL ${shadowed_sources})
target_compile_options(shadowed_kernels PRIVATE
  -O1 -fsanitize=thread $<$<CXX_COMPILER_ID:GNU>:--param=tsan-instrument-func-entry-exit=0>)
file(GLOB simt_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/simt/*.cpp)
add_executable(kernel_shadow_tests EXCLUDE_FROM_ALL ${simt_sources})
foreach(target shadowed_kernels kernel_shadow_tests)
  target_compile_definitions(${target} PRIVATE HEADRACE_SIMT_SHADOW)
  target_include_directories(${target} PRIVATE
    ${PROJECT_SOURCE_DIR}/src ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR})
  target_link_libraries(${target} PRIVATE
    headrace headrace_options GTest::gtest GTest::gtest_main nlohmann_json::nlohmann_json
    ${headrace_link_dependencies})
endforeach()
target_link_libraries(kernel_shadow_tests PRIVATE shadowed_kernels)
