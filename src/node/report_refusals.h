// What the rules of sandboxes' namespaces refused, told to the gateway, so that it stands in the audit log beside what the gateway refused.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "base/async.h"
#include "node/sandboxes.h"
#include "wire/warden_client.h"

namespace space::node {

// How the counts of VMs grew since they were told last. Plain values.
class RefusalCounts {
 public:
  // A VM of before this process began: what it has on its counters was told by whoever ran then, or is lost.
  void begin_with(const std::string& vm, const wire::Refusals& now) { told_[vm] = now; }
  wire::Refusals grown(const std::string& vm, const wire::Refusals& now) const;
  void told(const std::string& vm, const wire::Refusals& now) { told_[vm] = now; }
  // VMs for which `is_there` says no are forgotten.
  template <class F>
  void keep_only(F is_there) {
    std::erase_if(told_, [&](const auto& one) { return !is_there(one.first); });
  }

 private:
  std::map<std::string, wire::Refusals> told_;
};

// Every five seconds, until `stopping` is true; for node's loop. `disk` runs what blocks: some hundred microseconds in the warden for each
// running sandbox. A gateway that does not answer is told later. What a sandbox is refused in its last seconds is not told.
asio::awaitable<void> report_refusals(asio::any_io_executor executor, const Sandboxes& sandboxes,
                                      std::shared_ptr<wire::WardenClient> warden, BlockingPool& disk, std::filesystem::path gateway,
                                      const bool& stopping);

}  // namespace space::node
