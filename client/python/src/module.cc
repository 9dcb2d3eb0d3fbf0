// quarry._quarry: the C interface as Python classes. quarry/_quarry.pyi says what there is; the package
// around it, in Python, is what people call.
#include "bindings.h"

namespace quarry::python {
namespace {

// The exception is made by the package, which knows its classes.
void Translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Failure& failure) {
    try {
      const nb::object error =
          nb::module_::import_("quarry._errors").attr("make")(failure.code, failure.message.c_str());
      PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
    } catch (nb::python_error& other) {
      other.restore();
    }
  }
}

}  // namespace
}  // namespace quarry::python

NB_MODULE(_quarry, module) {
  using namespace quarry::python;  // NOLINT: the module's body
  // What others keep until the interpreter ends, as a DataLoader's worker does its arguments, is no leak.
  nb::set_leak_warnings(false);
  nb::register_exception_translator(Translate);
  module.attr("abi_version") = quarry_abi_version();
  nb::class_<Store> store = BindTables(module);
  BindTraining(module, store);
  BindStreams(module);
  BindSql(module);
  BindAdmin(module);
}
