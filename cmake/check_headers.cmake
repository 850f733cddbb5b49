# Every header must compile alone. One empty source a header, syntax only.
file(GLOB_RECURSE headers CONFIGURE_DEPENDS
  RELATIVE ${PROJECT_SOURCE_DIR} include/*.h src/*.h)
list(FILTER headers EXCLUDE REGEX "^src/(cuda|kernels|simt)/")
set(header_sources "")
foreach(header IN LISTS headers)
  string(REGEX REPLACE "^(include|src)/" "" spelling ${header})
  string(MAKE_C_IDENTIFIER ${header} stem)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/check_headers/${stem}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "#include \"@spelling@\"\n" @ONLY)
  list(APPEND header_sources ${source})
endforeach()

add_library(check_headers OBJECT EXCLUDE_FROM_ALL ${header_sources})
target_include_directories(check_headers PRIVATE include src)
target_compile_options(check_headers PRIVATE -O0 -g0)
target_link_libraries(check_headers PRIVATE
  headrace_options nlohmann_json::nlohmann_json ${headrace_link_dependencies})
