#include "cli/copy.h"

#include <fmt/format.h>

#include "base/encoding.h"
#include "base/random.h"
#include "cli/exit_status.h"

namespace space::cli {
namespace {

constexpr std::size_t kWorkers = 4;           // hides the wait for the disk behind small files
constexpr std::size_t kMostFailures = 1'000;  // listed; all are counted
constexpr std::size_t kMostUnanswered = 8;    // a guest's file may be unreadable; an agent that is dead has no answer for any

// The other files would meet it too: the way to the sandbox is lost, or it is not there to answer.
bool is_of_all(const Error& error) {
  switch (error.kind) {
    case ErrorKind::unavailable:
    case ErrorKind::deadline_exceeded:
    case ErrorKind::unauthenticated:
    case ErrorKind::cancelled:
      return error.code != "agent_not_answering";
    default:
      return error.code.starts_with("sandbox_") || error.code == "scope_missing" || error.code == "no_space" || error.code == "read_only";
  }
}

json::object to_json(const CopyFailure& failure) {
  const bool utf8 = is_utf8(failure.path);
  const Error& error = failure.error;
  json::object out{{"path", utf8 ? failure.path : printable(failure.path)},
                   {"code", error.code},
                   {"message", is_utf8(error.message) ? error.message : printable(error.message)},
                   {"next", error.next}};
  if (!utf8) out["path_base64"] = base64_encode(as_bytes(failure.path));
  return out;
}

// What was done, whole or in part.
void show(Console& console, const CopyResult& result) {
  if (console.as_json()) {
    json::array failures;
    for (const CopyFailure& failure : result.failures) failures.push_back(to_json(failure));
    console.value(json::object{{"files", result.files},
                               {"bytes", result.bytes},
                               {"skipped", result.skipped},
                               {"failed", result.failed},
                               {"failures", std::move(failures)}});
    return;
  }
  const std::string copied = fmt::format("{} file{}, {}", result.files, result.files == 1 ? "" : "s", format_bytes(result.bytes));
  if (result.failed > 0)
    console.note(fmt::format("space: {} could not be copied; copied: {}", result.failed, copied));
  else if (stderr_is_terminal())
    console.note(copied);
}

}  // namespace

std::optional<RemotePath> parse_remote(std::string_view text) {
  const auto colon = text.find(':');
  if (colon == std::string_view::npos || !is_id(text.substr(0, colon))) return std::nullopt;
  return RemotePath{std::string(text.substr(0, colon)), std::string(text.substr(colon + 1))};
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

Task<int> copy(Context& context, CopyOptions options) {
  const auto from = parse_remote(options.from);
  const auto to = parse_remote(options.to);
  if (from.has_value() == to.has_value())
    co_return fail(ErrorKind::invalid_argument, "bad_copy", "exactly one of the two must be in a sandbox",
                   "write `space cp FILE SANDBOX:/path` or `space cp SANDBOX:/path FILE`");
  Copier copier(context, from ? from->sandbox : to->sandbox, options.user);
  Result<> done;
  if (from)
    done = co_await copier.down(from->path, options.to);
  else
    done = co_await copier.up(options.from, to->path);
  const CopyResult& result = copier.result();
  if (done || result.failed > 0) show(context.console, result);
  if (!done) co_return tl::unexpected(done.error());
  co_return result.failed > 0 ? kInPart : 0;
}

Copier::Copier(Context& context, std::string sandbox, std::string user)
    : context_(context), sandbox_(std::move(sandbox)), user_(std::move(user)) {}

std::string Copier::target(std::string_view call, std::string_view path) const {
  TargetBuilder out("/v1/sandboxes");
  out.segment(sandbox_).segment("files");
  if (!call.empty()) out.segment(call);
  return out.query("path", path).query_if("user", user_).str();
}

// Nothing when there is no such file.
Task<std::optional<json::object>> Copier::stat(std::string path) {
  auto entry = co_await context_.api.get(target("stat", path));
  if (entry) co_return std::optional<json::object>(std::move(*entry));
  if (entry.error().kind == ErrorKind::not_found && entry.error().code != "sandbox_not_found") co_return std::optional<json::object>();
  co_return tl::unexpected(entry.error());
}

Result<> Copier::failed(const std::string& path, const Error& error) {
  unanswered_ = error.code == "agent_not_answering" ? unanswered_ + 1 : 0;
  if (is_of_all(error) || unanswered_ >= kMostUnanswered) return tl::unexpected(error);
  ++result_.failed;
  if (result_.failures.size() < kMostFailures) result_.failures.push_back({path, error});
  if (!context_.console.as_json())
    context_.console.note(fmt::format("space: {}: {} ({})", printable(path), printable(error.message), printable(error.code)));
  return {};
}

asio::awaitable<void> Copier::worker(Signal& change) {
  while (!error_ && (!jobs_.empty() || working_ > 0)) {
    if (jobs_.empty()) {
      co_await change.wait();
      continue;
    }
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    ++working_;
    auto done = co_await job.work();
    --working_;
    if (done) unanswered_ = 0;
    if (!done) done = failed(job.path, done.error());
    if (!done && !error_) error_ = done.error();
    change.notify_all();
  }
}

Task<> Copier::run_jobs() {
  Signal change(context_.executor);
  std::size_t alive = kWorkers;
  for (std::size_t i = 0; i < kWorkers; ++i)
    spawn(context_.executor, [](Copier& self, Signal& signal, std::size_t& count) -> asio::awaitable<void> {
      co_await self.worker(signal);
      --count;
      signal.notify_all();
    }(*this, change, alive));
  while (alive > 0) co_await change.wait();
  if (error_) co_return fail(*error_);
  co_return Result<>();
}

}  // namespace space::cli
