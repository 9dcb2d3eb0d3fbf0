// What ThreadSanitizer is not to report, in every test: libraries that are not instrumented. It sees the
// memory that they touch, and not what orders their threads.
//   RocksDB   its own threads and locks; it copies and compares bytes that it was given
//   liburing  gives the memory of a ring back by a system call of its own, before another ring has it
extern "C" const char* __tsan_default_suppressions();  // NOLINT(bugprone-reserved-identifier): its name

extern "C" const char* __tsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier): its name
  return "race:librocksdb.so\nrace:liburing\n";
}
