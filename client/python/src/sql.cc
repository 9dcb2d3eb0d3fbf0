// SQL: a statement's rows, all of them, as Python tuples, NumPy arrays or an Arrow stream.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "arrow.h"
#include "bindings.h"

namespace quarry::python {
namespace {

using SqlHandle = Handle<quarry_sql, quarry_sql_free>;
using CursorHandle = Handle<quarry_cursor, quarry_cursor_free>;

// A parameter with the bytes that it points to.
struct Parameter {
  quarry_value value{};
  std::string bytes;
};

Parameter ParameterOf(nb::handle given) {
  Parameter out;
  if (given.is_none()) {
    out.value.type = QUARRY_NULL;
  } else if (nb::isinstance<nb::bool_>(given) || nb::isinstance<nb::int_>(given)) {
    out.value.type = QUARRY_INTEGER;
    out.value.integer = nb::cast<int64_t>(given);
  } else if (nb::isinstance<nb::float_>(given)) {
    out.value.type = QUARRY_REAL;
    out.value.real = nb::cast<double>(given);
  } else if (nb::isinstance<nb::str>(given)) {
    out.value.type = QUARRY_TEXT;
    out.bytes = nb::cast<std::string>(given);
  } else if (nb::isinstance<nb::bytes>(given)) {
    out.value.type = QUARRY_BLOB;
    const auto bytes = nb::cast<nb::bytes>(given);
    out.bytes.assign(bytes.c_str(), bytes.size());
  } else {
    const nb::str type = nb::str(given.type().attr("__name__"));
    throw Failure{QUARRY_INVALID_ARGUMENT, std::string("a parameter of type ") + type.c_str() +
                                               ": None, int, float, str or bytes are what SQL takes"};
  }
  return out;
}

void ReadRow(quarry_cursor* cursor, std::vector<Column>& columns) {
  for (size_t i = 0; i < columns.size(); ++i) {
    const int type = quarry_cursor_type(cursor, i);
    uint64_t bytes = 0;
    switch (type) {
      case QUARRY_INTEGER:
        columns[i].Add(quarry_cursor_int64(cursor, i));
        break;
      case QUARRY_REAL:
        columns[i].Add(quarry_cursor_double(cursor, i));
        break;
      case QUARRY_TEXT:
      case QUARRY_BLOB: {
        const void* const data = quarry_cursor_blob(cursor, i, &bytes);
        columns[i].Add(type, static_cast<const char*>(data), bytes);
        break;
      }
      default:
        columns[i].AddNull();
    }
  }
}

nb::object ObjectOf(const Column& column, size_t row) {
  const Cell& cell = column.cells[row];
  switch (cell.type) {
    case QUARRY_INTEGER:
      return nb::int_(cell.integer);
    case QUARRY_REAL:
      return nb::float_(cell.real);
    case QUARRY_TEXT:
      return nb::str(column.bytes.data() + cell.begin, cell.length);
    case QUARRY_BLOB:
      return nb::bytes(column.bytes.data() + cell.begin, cell.length);
    default:
      return nb::none();
  }
}

template <typename T, typename Value>
nb::object ArrayOf(const Column& column, Value value) {
  const size_t count = column.cells.size();
  auto* const out = new T[std::max<size_t>(1, count)];
  const nb::capsule owner(out, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  for (size_t i = 0; i < count; ++i) out[i] = value(column.cells[i]);
  return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(out, {count}, owner));
}

// int64, or float64 with NaN for NULL, where all values are numbers; else a list of objects.
nb::object NumpyOf(const Column& column) {
  const auto real = [](const Cell& cell) {
    if (cell.type == QUARRY_NULL) return std::numeric_limits<double>::quiet_NaN();
    return cell.type == QUARRY_INTEGER ? static_cast<double>(cell.integer) : cell.real;
  };
  if (!column.Has(QUARRY_TEXT) && !column.Has(QUARRY_BLOB)) {
    if (column.Has(QUARRY_REAL) || (column.Has(QUARRY_INTEGER) && column.Has(QUARRY_NULL))) {
      return ArrayOf<double>(column, real);
    }
    if (column.Has(QUARRY_INTEGER) || column.cells.empty()) {
      return ArrayOf<int64_t>(column, [](const Cell& cell) { return cell.integer; });
    }
  }
  nb::list out;
  for (size_t i = 0; i < column.cells.size(); ++i) out.append(ObjectOf(column, i));
  return out;
}

nb::list TuplesOf(const Table& table) {
  nb::list out;
  for (size_t row = 0; row < table.row_count(); ++row) {
    nb::list values;
    for (const Column& column : table.columns) values.append(ObjectOf(column, row));
    out.append(nb::tuple(values));
  }
  return out;
}

struct Sql {
  std::shared_ptr<SqlHandle> handle;
};
struct Rows {
  std::shared_ptr<const Table> table;
};

Sql Connect(const Store& store, bool write, double timeout_seconds) {
  const std::shared_ptr<StoreHandle> held = store.handle;
  quarry_store* const handle = held->get();
  quarry_sql_options options{};
  options.size = sizeof options;
  options.write = write ? 1 : 0;
  options.timeout_seconds = timeout_seconds;
  quarry_sql* sql = nullptr;
  {
    const nb::gil_scoped_release free;
    Check(quarry_sql_open(handle, &options, &sql));
  }
  return {std::make_shared<SqlHandle>(sql, held)};
}

Rows Run(const Sql& sql, const std::string& text, const nb::list& parameters) {
  std::vector<Parameter> given;
  for (nb::handle parameter : parameters) given.push_back(ParameterOf(parameter));
  std::vector<quarry_value> values;
  for (Parameter& parameter : given) {
    parameter.value.data = parameter.bytes.data();
    parameter.value.bytes = parameter.bytes.size();
    values.push_back(parameter.value);
  }
  const std::shared_ptr<SqlHandle> held = sql.handle;
  quarry_sql* const handle = held->get();
  auto table = std::make_shared<Table>();
  {
    const nb::gil_scoped_release free;
    quarry_cursor* raw = nullptr;
    Check(quarry_sql_query(handle, text.c_str(), values.data(), values.size(), &raw));
    const CursorHandle cursor(raw, held);
    for (size_t i = 0; i < quarry_cursor_column_count(raw); ++i) {
      table->columns.emplace_back().name = quarry_cursor_column_name(raw, i);
    }
    int more = 0;
    Check(quarry_cursor_next(raw, &more));
    while (more != 0) {
      ReadRow(raw, table->columns);
      Check(quarry_cursor_next(raw, &more));
    }
  }
  return {std::move(table)};
}

}  // namespace

void BindSql(nb::module_& module) {
  nb::class_<Rows>(module, "Rows")
      .def_prop_ro("columns",
                   [](const Rows& self) {
                     nb::list names;
                     for (const Column& column : self.table->columns) names.append(column.name);
                     return names;
                   })
      .def("__len__", [](const Rows& self) { return self.table->row_count(); })
      .def("tuples", [](const Rows& self) { return TuplesOf(*self.table); })
      .def("column",
           [](const Rows& self, size_t i) {
             if (i >= self.table->columns.size()) throw nb::index_error("no such column");
             return NumpyOf(self.table->columns[i]);
           })
      .def("arrow_schema", [](const Rows& self) { return SchemaCapsule(*self.table); })
      .def("arrow_stream", [](const Rows& self) { return StreamCapsule(self.table); });
  nb::class_<Sql>(module, "Sql")
      .def_static("open", Connect, nb::arg("store"), nb::arg("write"), nb::arg("timeout_seconds"))
      .def("run", Run, nb::arg("text"), nb::arg("parameters"))
      .def("interrupt", [](const Sql& self) { quarry_sql_interrupt(self.handle->get()); })
      .def("close", [](Sql& self) {
        self.handle = std::make_shared<SqlHandle>(nullptr, nullptr);
        self.handle->Release("the connection is closed");
      });
}

}  // namespace quarry::python
