# The tests where threads meet, for ThreadSanitizer in continuous integration: all tests take ten
# minutes to build so. Those that start threads themselves or read and write in the background, and
# of the kernels a few decoders, by simt's blocks on the pool. `make test-tsan` has everything.
set(race_regex "std::j?thread|start_thread|parallel_for|_async\\(")
set(race_kernels kernels/lz4_test.cpp kernels/deflate_test.cpp kernels/zstd_golden_test.cpp)

foreach(source IN LISTS test_sources kernel_test_sources)
  file(STRINGS ${source} meeting REGEX "${race_regex}" LIMIT_COUNT 1)
  file(RELATIVE_PATH name ${CMAKE_CURRENT_SOURCE_DIR} ${source})
  if(name MATCHES "^kernels/")
    if(meeting OR name IN_LIST race_kernels OR name MATCHES "/queues.cpp$")
      list(APPEND kernel_race_sources ${source})
    endif()
  elseif(meeting OR name MATCHES "^conformance/")
    list(APPEND race_sources ${source})
  endif()
endforeach()

foreach(tests IN ITEMS race kernel_race)
  add_executable(${tests}_tests EXCLUDE_FROM_ALL ${${tests}_sources})
  target_include_directories(${tests}_tests PRIVATE
    ${PROJECT_SOURCE_DIR}/src ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR})
  target_link_libraries(${tests}_tests PRIVATE
    headrace_test_options headrace headrace_options GTest::gtest GTest::gtest_main ${GMOCK_LIBRARY}
    nlohmann_json::nlohmann_json ${headrace_link_dependencies})
endforeach()
add_custom_target(races DEPENDS race_tests kernel_race_tests shm_tests)
