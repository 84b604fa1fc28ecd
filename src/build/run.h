// One build being carried out. For the role's loop.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "build/builds.h"
#include "build/guest.h"

namespace space::build {

struct Live {
  Live(asio::any_io_executor executor, std::string build) : id(std::move(build)), changed(std::move(executor)) {}
  std::string id;
  std::string sandbox;  // that is to be removed; "" when there is none
  std::vector<LogEntry> log;
  std::size_t written = 0, bytes = 0;  // entries in the file, bytes of all
  bool cancelled = false, timed_out = false, over = false;
  Signal changed;
};

class Run {
 public:
  Run(Builds& builds, std::shared_ptr<Live> live, Build& build) : b_(builds), live_(std::move(live)), build_(build) {}
  // From the parent to the published template; what was made on the way is gone afterwards, but for the layers. The error, with the
  // step in build.failed_step.
  Task<> go();

 private:
  struct Parent {
    std::string reference, digest;
    std::int64_t cpus = 1, memory_mib = 512, disk_mib = 4096;
    Context context;
    std::string start, ready;
  };
  Task<> work();
  Task<> read_parent();
  Task<> read_files();
  Task<> make_sandbox();
  Task<std::string> launch(std::string checkpoint);
  Task<> step(std::size_t at);
  Task<> run_line(const Step& step);
  Task<> copy(const Step& step, const std::string& digest);
  Task<> unpack_image();
  Task<> script(std::string what, std::vector<std::string> argv);
  Task<> keep_layer(const std::string& key);
  Task<> publish();
  void say(std::string message, std::string level = "info");
  Guest::Hear hearing(bool quiet_output = false);
  Result<> may_go_on() const;
  Guest guest() { return Guest(b_.parts_.node, b_.pool_, build_.tenant, live_->sandbox); }

  Builds& b_;
  std::shared_ptr<Live> live_;
  Build& build_;
  std::string at_ = "base";  // the step that is under way, as failed_step
  Parent parent_;
  Context context_;
  std::vector<std::string> digests_;  // of each step's files
  std::string image_digest_;
  std::string root_;                 // the key of what the steps stand on
  std::vector<std::string> keys_;    // of each step's layer
  std::vector<bool> worth_keeping_;  // whether a layer is taken after it
  std::size_t next_ = 0;             // the first step that is not in a layer already
  bool have_root_ = false;           // the unpacked image is
  std::int64_t depth_ = 0;
  std::string out_, err_;  // what came of a line that is not whole yet
  std::string last_words_;
};

}  // namespace space::build
