// Making one base: boots the template's kernel on an empty overlay, waits for the agent, warms the guest up, freezes its user
// processes and saves. Private to this folder.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/async.h"
#include "template/release.h"
#include "vmm/driver.h"

namespace space::tmpl {

struct BaseOrder {
  std::string key;
  Release release;
  vmm::Size size;
  std::filesystem::path folder;  // empty; holds the whole base afterwards, the manifest included
};

// A wish that whatever is under way should end. For one loop.
struct Stop {
  explicit Stop(asio::any_io_executor executor) : changed(std::move(executor)) {}
  void ask() {
    asked = true;
    changed.notify_all();
  }
  bool asked = false;
  Signal changed;
};
Error node_stopping();

// How far a making has come. For one loop.
struct MakingProgress {
  std::string step = "waiting";
  unsigned done = 0, of = 1;
};

// Some seconds to a minute; much less after stop.ask(): unavailable/node_stopping. The VM it uses is gone when it returns, whatever
// happened.
Task<> make_base(vmm::Driver& driver, BlockingPool& pool, BaseOrder order, std::shared_ptr<Stop> stop,
                 std::shared_ptr<MakingProgress> progress);

}  // namespace space::tmpl
