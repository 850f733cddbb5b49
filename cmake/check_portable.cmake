# The portable build refers to nothing that macOS lacks: tools/check_portable, as a test.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(portable_files $<TARGET_FILE:headrace> $<TARGET_FILE:headrace_commands> $<TARGET_FILE:headrace_cli>)
if(HEADRACE_SHARED)
  list(APPEND portable_files $<TARGET_FILE:headrace_shared>)
endif()
if(HEADRACE_BUILD_PYTHON)
  list(APPEND portable_files $<TARGET_FILE:_core>)
endif()
add_test(NAME portable
  COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/tools/check_portable.py
    ${PROJECT_BINARY_DIR}/compile_commands.json ${portable_files})
