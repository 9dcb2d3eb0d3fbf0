// The rows of a table as a reader gets them: its file, and what is newer.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "quarry/format/element_type.h"
#include "quarry/storage/store.h"
#include "quarry/verify/verify.h"
#include "support/status_matchers.h"

namespace quarry::testing_util {

using TableRows = std::vector<std::vector<std::byte>>;

inline TableRows RowsAt(Store& store, const std::shared_ptr<const Snapshot>& snapshot,
                        const std::string& name) {
  const TableRecord& record = *snapshot->FindTable(name);
  const uint64_t row_bytes = RowBytes(record.element_type, record.dim);
  std::vector<std::byte> bytes(record.row_count * row_bytes);
  const auto table = store.OpenTable(*snapshot, name);
  EXPECT_OK(table);
  Status status = (*table)->ReadRows(store.backend(), 0, record.row_count, bytes);
  EXPECT_OK(status);
  const auto newer = store.OpenOverlay(name, snapshot);
  EXPECT_OK(newer);
  const std::vector<uint64_t> touched = (*newer)->TouchedRows();
  status = (*newer)->Read(touched, [&](size_t i, std::span<const std::byte> value) {
    std::memcpy(&bytes[touched[i] * row_bytes], value.data(), row_bytes);
  });
  EXPECT_OK(status);
  TableRows rows(record.row_count);
  for (uint64_t row = 0; row < record.row_count; ++row) {
    const auto begin = bytes.begin() + static_cast<ptrdiff_t>(row * row_bytes);
    rows[row].assign(begin, begin + static_cast<ptrdiff_t>(row_bytes));
  }
  return rows;
}

inline TableRows RowsNow(Store& store, const std::string& name) {
  const auto snapshot = store.TakeSnapshot();
  EXPECT_OK(snapshot);
  return RowsAt(store, *snapshot, name);
}

// Everything that verify has to say.
inline std::string FaultsIn(Store& store) {
  const auto report = VerifyStore(store, {});
  if (!report.ok()) return report.status().ToString();
  std::string text;
  for (const Status& fault : report->faults) text += std::string(fault.message()) + "\n";
  return text;
}

}  // namespace quarry::testing_util
