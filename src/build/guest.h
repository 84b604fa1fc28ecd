// What a build does in its sandbox, through node's data plane: run a command and hear it, write a file. Everything that comes back
// is the guest's word: bounded here, and only ever shown. For the role's loop.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/async.h"
#include "build/uploads.h"
#include "control/node.h"

namespace space::build {

class Guest {
 public:
  Guest(control::Node& node, BlockingPool& pool, std::string tenant, std::string sandbox)
      : node_(node), pool_(pool), tenant_(std::move(tenant)), sandbox_(std::move(sandbox)) {}

  struct Command {
    std::vector<std::string> argv;  // either this
    std::string line;               // or one for the guest's shell
    std::string user, cwd;
    std::map<std::string, std::string> env;
    std::chrono::milliseconds limit = std::chrono::minutes(20);
  };
  struct Ended {
    std::int64_t code = -1, signal = 0;
    bool timed_out = false;
  };
  using Hear = std::function<void(bool error_output, std::string_view bytes)>;
  Task<Ended> run(Command command, Hear hear);
  // As root, mode 0600 unless said otherwise; folders above it are made.
  Task<> write(std::string path, std::string text, std::string mode = "0600");
  Task<> write(std::string path, Uploads::File file);

 private:
  Task<> put(std::string path, std::string mode, std::uint64_t length, std::function<Result<std::string>(std::uint64_t)> piece);
  http::Request request(std::string method, std::string rest) const;

  control::Node& node_;
  BlockingPool& pool_;
  std::string tenant_, sandbox_;
};

}  // namespace space::build
