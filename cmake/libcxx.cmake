# For the preset libcxx: packages have fmt and googletest made for libstdc++. Of fmt the headers do,
# googletest is compiled here; of the other libraries no function takes types of the standard library.
file(WRITE ${CMAKE_FIND_PACKAGE_REDIRECTS_DIR}/fmt-config.cmake [[
add_library(fmt::fmt INTERFACE IMPORTED)
target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY=1)
]])

# Bounds checks of containers, as _GLIBCXX_ASSERTIONS makes them.
add_compile_definitions(_LIBCPP_HARDENING_MODE=_LIBCPP_HARDENING_MODE_EXTENSIVE)

include(FetchContent)
set(INSTALL_GTEST OFF)
FetchContent_Declare(GTest SOURCE_DIR /usr/src/googletest OVERRIDE_FIND_PACKAGE)
