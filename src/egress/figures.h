// What the gateway counts, for Prometheus. Sums over all sandboxes since this process began: a sandbox that goes, or a worker that
// dies, takes nothing away. No tenant, sandbox or host is a label, so that the number of series is fixed.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "wire/refusals.h"

namespace space::egress {

class Figures {
 public:
  // An event of the audit log, which stands for `count` decisions; `unreported`: it does not name what they were about. A worker may have
  // been taken over: words that are not known count as "other", and a number that cannot be as one.
  void decided(const json::object& event);
  void refused(const wire::Refusals& grown);  // before the gateway
  void worker_died() { ++worker_deaths_; }
  // A sandbox's counters as its worker told them before and now; smaller ones are those of a new worker.
  void counted(const json::object& before, const json::object& now);

  struct Now {
    std::uint64_t sandboxes = 0, attached = 0, workers = 0, open_connections = 0, names = 0, credentials = 0;
  };
  std::string text(const Now& now) const;  // text format 0.0.4

 private:
  static std::string_view known_kind(std::string_view kind);
  static std::string_view known_verdict(std::string_view verdict);
  std::map<std::pair<std::string_view, std::string_view>, std::uint64_t> decisions_;
  wire::Refusals refused_{};
  std::uint64_t connections_ = 0, requests_ = 0, denied_ = 0, bytes_up_ = 0, bytes_down_ = 0, unreported_ = 0, worker_deaths_ = 0;
};

}  // namespace space::egress
