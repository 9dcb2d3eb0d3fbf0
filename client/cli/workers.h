// `quarry train --workers N`: N processes of this program, each a trainer, that learn one model together on
// the streams of one server. This one starts them, waits for them, and says what became of them; how they
// find each other they are told in the environment, as by any other launcher (quarry/trainer/communicator.h).
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "quarry/base/status.h"

namespace quarry::cli {

struct WorkerFlags {
  uint32_t count = 1;
  // What the starting process tells the started one, by options that are in no help.
  std::string address;        // the server's
  uint64_t memory_bytes = 0;  // to ask of it; 0: as --memory says
  int status_fd = -1;         // where to say how it ended; -1: this process was not started so

  void AddTo(CLI::App* verb);
};

// A folder for this run's socket and meeting place, which nobody else may enter; removed with all that is in
// it.
// The workers meet by a file in it, not at a port: nothing listens on the network, and no port can be taken
// between choosing and using it. What Gloo sends goes over the loopback.
class WorkerFolder {
 public:
  static Result<std::unique_ptr<WorkerFolder>> Make();
  ~WorkerFolder();
  WorkerFolder(const WorkerFolder&) = delete;
  WorkerFolder& operator=(const WorkerFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  explicit WorkerFolder(std::string path) : path_(std::move(path)) {}
  const std::string path_;
};

// Runs this command again, `count` times at once, on the server at `address`. When one fails, or Ctrl-C
// comes, all are ended; returns the first failure. No process is left behind, not even when this one is
// killed.
Status RunWorkers(uint32_t count, const std::string& address, uint64_t memory_bytes,
                  const WorkerFolder& folder);

// Called by a started process: arranges that it ends with the one that started it.
Status FollowStarter(int status_fd);
// Tells it the status. Returns OK: what there is to say is said there.
Status TellStarter(int status_fd, const Status& status);

}  // namespace quarry::cli
