// The audit log: every event of every worker gets a number here, stays in memory for a while, and goes to a file.
#pragma once

#include <deque>
#include <filesystem>
#include <string>

#include "base/async.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"

namespace space::egress {

struct AuditEntry {
  std::uint64_t sequence = 0;  // grows, also over restarts; not without gaps
  std::string tenant, sandbox, kind;
  std::string text;  // the event as JSON, with sequence, time and tenant
};

// Belongs to the parent's loop; files are written by a pool.
class AuditLog {
 public:
  struct Options {
    std::size_t most_entries = 20'000;  // in memory
    std::size_t most_bytes = 16 << 20;
    std::uint64_t file_bytes = 64 << 20;  // then audit.log becomes audit.log.1, and so on
    int files = 8;
  };
  AuditLog(asio::any_io_executor executor, BlockingPool& disk, std::filesystem::path folder, const Clock& clock, Options options);

  void append(const std::string& tenant, json::object event);
  // The oldest entry with a greater number, or nullptr.
  const AuditEntry* after(std::uint64_t sequence) const;
  asio::awaitable<bool> wait(std::chrono::milliseconds time);  // for another entry
  // Writes what was appended, every half second and at the end; each time it is on the disk when it returns.
  asio::awaitable<void> keep_writing();
  asio::awaitable<void> flush();

 private:
  BlockingPool& disk_;
  std::filesystem::path folder_;
  const Clock& clock_;
  Options options_;
  Signal appended_;
  std::deque<AuditEntry> entries_;
  std::size_t bytes_ = 0;
  std::uint64_t sequence_;
  std::string unwritten_;
  std::uint64_t lost_ = 0;  // lines that did not fit into memory while the disk was slow
};

}  // namespace space::egress
