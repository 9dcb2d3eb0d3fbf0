# Packages for Debian and Ubuntu (`./dev package`): `quarry` of component tool, `libquarry-dev` of component library.
# What they depend on, dpkg-shlibdeps finds in the binaries.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME quarry)
set(CPACK_PACKAGE_CONTACT "Quarry maintainers <maintainers@quarry.invalid>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_ALL tool library)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_TOOL_PACKAGE_NAME quarry)
set(CPACK_DEBIAN_TOOL_PACKAGE_SECTION science)
set(CPACK_COMPONENT_TOOL_DESCRIPTION "storage engine for GNN training data: the command
 Imports graphs with features and labels, queries them by SQL, serves them to trainers, and trains GNNs on what is
 larger than memory.")
# LibTorch would be satisfied by the reference BLAS, whose GEMM is 30 times slower.
set(CPACK_DEBIAN_TOOL_PACKAGE_DEPENDS libopenblas0-pthread)
# libcurl is opened by name, when an object store is asked for.
set(CPACK_DEBIAN_TOOL_PACKAGE_RECOMMENDS "sqlite3, libcurl4")
set(CPACK_DEBIAN_TOOL_PACKAGE_SUGGESTS gnuplot-nox)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libquarry-dev)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libdevel)
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION "storage engine for GNN training data: libraries and headers
 For programs of C and C++20 that read a Quarry database, or have one served, and take mini-batches from it.")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_DEPENDS libfmt-dev)
include(CPack)
