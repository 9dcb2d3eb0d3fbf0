// The fixture of tests that run the real binary over one database: a folder for all tests of the suite, with `db` in it.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "quarry_process.h"

namespace quarry {

// A suite's SetUpTestSuite calls MakeDatabase; the folder goes when the suite ends.
class CliDatabaseTest : public testing::Test {
 protected:
  static void TearDownTestSuite() { std::filesystem::remove_all(root_); }

  // `db`, of a graph that was generated with these options, and imported with those.
  static void MakeDatabase(const std::string& name, const std::string& generate,
                           const std::string& import = "") {
    root_ = MakeGeneratedDatabase(name, generate, import);
  }

  static Outcome Run(const std::string& arguments, std::vector<std::string> variables = {}) {
    return Process(arguments, root_, std::move(variables)).Wait();
  }
  static void Expect0(const std::string& arguments) {
    const Outcome outcome = Run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << arguments << "\n" << outcome.err;
  }
  static nlohmann::json RunJson(const std::string& arguments) {
    const Outcome outcome = Run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << arguments << "\n" << outcome.err;
    return outcome.exit_code == 0 ? nlohmann::json::parse(outcome.out) : nlohmann::json();
  }

  static std::filesystem::path Path(const std::string& name) { return root_ / name; }
  static void Write(const std::string& name, const std::string& text) {
    std::ofstream file(Path(name));
    file << text;
    ASSERT_TRUE(file.good()) << name;
  }
  static void CopyDatabase(const std::string& name) {
    std::filesystem::remove_all(Path(name));
    std::filesystem::copy(Path("db"), Path(name), std::filesystem::copy_options::recursive);
  }

  static inline std::filesystem::path root_;
};

}  // namespace quarry
