# The tests where threads meet, for ThreadSanitizer in continuous integration: those that start
# threads themselves or read and write in the background, and the kernels' and shared memory's.
# tests/run_races says what of these is run. `make test-tsan` has everything.
set(race_regex "std::j?thread|start_thread|parallel_for|_async\\(|SlabsInFlight|WorkBehind")

foreach(source IN LISTS test_sources)
  file(STRINGS ${source} meeting REGEX "${race_regex}" LIMIT_COUNT 1)
  file(RELATIVE_PATH name ${CMAKE_CURRENT_SOURCE_DIR} ${source})
  # What goes through libcurl, which knows nothing of ThreadSanitizer, is left to test-tsan; so are
  # the servers' credentials and references, where stand-ins start the threads.
  if(name MATCHES "^unit/(http_|cloud_|store_catalogue)")
    continue()
  endif()
  if(meeting OR name MATCHES "^(conformance|support)/|device_write")
    list(APPEND race_sources ${source})
  endif()
endforeach()

add_executable(race_tests EXCLUDE_FROM_ALL ${race_sources})
target_include_directories(race_tests PRIVATE
  ${PROJECT_SOURCE_DIR}/src ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR})
target_link_libraries(race_tests PRIVATE
  headrace_test_options headrace headrace_options GTest::gtest GTest::gtest_main GTest::gmock
  nlohmann_json::nlohmann_json ${headrace_link_dependencies})
target_compile_options(race_tests PRIVATE -O0)
headrace_link_library_first(race_tests)
headrace_precompile(race_tests <filesystem> <fstream> <random> <gmock/gmock.h> <gtest/gtest.h>)
add_custom_target(races DEPENDS race_tests kernel_tests shm_tests)
