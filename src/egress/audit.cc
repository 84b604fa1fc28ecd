#include "egress/audit.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"

namespace space::egress {
namespace fs = std::filesystem;
namespace {

constexpr std::chrono::milliseconds kEvery{500};
constexpr std::size_t kLongestLine = 8 << 10;
constexpr std::size_t kMostUnwritten = 32 << 20;

void rotate(const fs::path& file, int files) {
  std::error_code ignored;
  for (int i = files - 1; i >= 1; --i)
    fs::rename(i == 1 ? file : fs::path(fmt::format("{}.{}", file.string(), i - 1)), fmt::format("{}.{}", file.string(), i), ignored);
}

Result<> append_to(const fs::path& file, const std::string& text, std::uint64_t most, int files) {
  struct stat info {};
  if (::stat(file.c_str(), &info) == 0 && static_cast<std::uint64_t>(info.st_size) >= most) rotate(file, files);
  TRY(const Fd fd, open_file(file, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW, 0600));
  TRY_VOID(write_all(fd, text));
  if (::fdatasync(fd.get()) != 0) return fail_errno(errno, "write the audit log");
  return {};
}

}  // namespace

AuditLog::AuditLog(asio::any_io_executor executor, BlockingPool& disk, fs::path folder, const Clock& clock, Options options)
    : disk_(disk),
      folder_(std::move(folder)),
      clock_(clock),
      options_(options),
      appended_(std::move(executor)),
      sequence_(static_cast<std::uint64_t>(clock.wall_ms()) * 1000) {}

void AuditLog::append(const std::string& tenant, json::object event) {
  AuditEntry entry;
  entry.sequence = ++sequence_;
  entry.tenant = tenant;
  const auto text_of = [&](std::string_view key) {
    const auto* value = event.if_contains(key);
    return value && value->is_string() ? std::string(value->get_string()) : std::string();
  };
  entry.sandbox = text_of("sandbox");
  entry.kind = text_of("kind");
  json::object line{{"sequence", entry.sequence}, {"time", rfc3339(clock_.wall_ms())}, {"tenant", tenant}};
  // A worker may have been taken over: it does not choose these, nor fill the log with one line.
  for (auto& [key, value] : event)
    if (!line.contains(key)) line[key] = value;
  entry.text = json::serialize(line);
  if (entry.text.size() > kLongestLine) {
    entry.kind = "security";
    const json::object instead{{"sequence", entry.sequence},
                               {"time", line["time"]},
                               {"tenant", tenant},
                               {"sandbox", entry.sandbox},
                               {"kind", entry.kind},
                               {"verdict", "error"},
                               {"reason", "a worker sent an event that is too long for the log"}};
    entry.text = json::serialize(instead);
  }
  if (unwritten_.size() + entry.text.size() < kMostUnwritten)
    unwritten_.append(entry.text).push_back('\n');
  else
    ++lost_;
  bytes_ += entry.text.size();
  entries_.push_back(std::move(entry));
  while (entries_.size() > options_.most_entries || bytes_ > options_.most_bytes) {
    bytes_ -= entries_.front().text.size();
    entries_.pop_front();
  }
  appended_.notify_all();
}

const AuditEntry* AuditLog::after(std::uint64_t sequence) const {
  const auto found =
      std::upper_bound(entries_.begin(), entries_.end(), sequence, [](std::uint64_t s, const AuditEntry& e) { return s < e.sequence; });
  return found == entries_.end() ? nullptr : &*found;
}

asio::awaitable<bool> AuditLog::wait(std::chrono::milliseconds time) { return appended_.wait_for(time); }

asio::awaitable<void> AuditLog::flush() {
  if (unwritten_.empty()) co_return;
  std::string text = std::exchange(unwritten_, {});
  auto write = [&] { return append_to(folder_ / "audit.log", text, options_.file_bytes, options_.files); };
  const auto written = co_await disk_.run(std::ref(write));
  if (!written) log::error("egress.audit_not_written", {{"error", written.error()}, {"bytes", text.size()}});
  if (lost_ > 0) log::error("egress.audit_lost", {{"lines", std::exchange(lost_, 0)}});
}

asio::awaitable<void> AuditLog::keep_writing() {
  for (;;) {
    co_await sleep_for(kEvery);
    co_await flush();
  }
}

}  // namespace space::egress
