#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/encoding.h"
#include "base/file.h"
#include "cli/copy.h"
#include "cli/event_stream.h"

namespace space::cli {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kUpPiece = 256 << 10;

struct Local {
  fs::path path;
  struct stat info {};
};

Result<Local> look(const fs::path& path, bool follow) {
  Local out{path, {}};
  if ((follow ? ::stat(path.c_str(), &out.info) : ::lstat(path.c_str(), &out.info)) != 0) return fail_errno(errno, path.string());
  return out;
}

std::string join(std::string folder, const std::string& name) {
  if (!folder.empty() && !folder.ends_with('/')) folder += '/';
  return folder + name;
}

std::string base_name(const fs::path& path) {
  const fs::path whole = fs::absolute(path).lexically_normal();
  return whole.has_filename() ? whole.filename().string() : whole.parent_path().filename().string();
}

std::string octal(mode_t mode) { return fmt::format("{:04o}", mode & 07777); }

}  // namespace

Task<> Copier::up(fs::path from, std::string to) {
  CO_TRY(const Local source, look(from, true));
  const bool folder = S_ISDIR(source.info.st_mode);
  if (!folder && !S_ISREG(source.info.st_mode))
    co_return fail(ErrorKind::invalid_argument, "not_a_file", from.string() + " is neither a file nor a folder", "copy what it leads to");
  // Like cp: into a folder that is there, else under the new name.
  const std::string place = to.empty() ? "." : to;
  CO_TRY(auto there, co_await stat(place));
  if (there && text_of(*there, "type") == "symlink") {
    CO_TRY(there, co_await stat(to + "/."));  // what it leads to
  }
  if ((there && text_of(*there, "type") == "dir") || to.empty() || to.ends_with('/')) to = join(to, base_name(from));
  bar_ = std::make_unique<ProgressBar>(base_name(from), 0, true);
  if (!folder) {
    bar_->expect(static_cast<std::uint64_t>(source.info.st_size));
    co_return co_await upload_file(from, to);
  }
  CO_TRY_VOID(co_await queue_tree(from, to));
  co_return co_await run_jobs();
}

// Makes the folders at once, in order, and queues what is in them. An error is of this folder; what fails in it is told of.
Task<> Copier::queue_tree(fs::path from, std::string to) {
  CO_TRY(const Local folder, look(from, true));
  CO_TRY_VOID(co_await make_remote_folder(to, folder.info.st_mode & 07777));
  CO_TRY(const std::vector<std::string> names, list_directory(from));
  for (const std::string& name : names) {
    const fs::path path = from / name;
    const std::string remote = join(to, name);
    const auto item = look(path, false);
    if (!item) {
      CO_TRY_VOID(failed(path.string(), item.error()));
    } else if (S_ISDIR(item->info.st_mode)) {
      auto queued = co_await queue_tree(path, remote);
      if (!queued) CO_TRY_VOID(failed(path.string(), queued.error()));
    } else if (S_ISREG(item->info.st_mode)) {
      bar_->expect(static_cast<std::uint64_t>(item->info.st_size));
      jobs_.push_back({path.string(), [this, path, remote] { return upload_file(path, remote); }});
    } else if (S_ISLNK(item->info.st_mode)) {
      jobs_.push_back({path.string(), [this, path, remote] { return upload_link(path, remote); }});
    } else {
      ++result_.skipped;
      context_.console.note(fmt::format("space: skipped {}: neither file, folder nor link", printable(path.string())));
    }
  }
  co_return Result<>();
}

Task<> Copier::make_remote_folder(std::string path, unsigned mode) {
  json::object body = {{"mode", octal(mode)}, {"parents", true}};
  if (is_utf8(path))
    body["path"] = path;
  else
    body["path_base64"] = base64_encode(as_bytes(path));
  if (!user_.empty()) body["user"] = user_;
  const std::string where = TargetBuilder("/v1/sandboxes").segment(sandbox_).segment("files").segment("mkdir").str();
  auto made = co_await context_.api.send("POST", where, std::move(body));
  if (made || made.error().code == "already_exists") co_return Result<>();
  co_return tl::unexpected(made.error());
}

Task<> Copier::upload_file(fs::path from, std::string to) {
  CO_TRY(const Fd file, open_file(from, O_RDONLY));
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) co_return fail_errno(errno, from.string());
  const auto size = static_cast<std::uint64_t>(info.st_size);
  const std::string where = target("content", to) + "&mode=" + octal(info.st_mode) + "&parents=1";
  CO_TRY(const auto stream, co_await context_.api.open("PUT", where, http::BodyKind::sized, size));
  std::string piece(kUpPiece, '\0');
  for (std::uint64_t sent = 0; sent < size;) {
    const std::size_t want = std::min<std::uint64_t>(kUpPiece, size - sent);
    const auto read = [&] { return ::read(file.get(), piece.data(), want); };
    const ssize_t count = co_await context_.pool.run(read);
    if (count < 0) co_return fail_errno(errno, "read " + from.string());
    if (count == 0)
      co_return fail(ErrorKind::conflict, "file_changed", from.string() + " became shorter while it was read", "copy it again");
    const auto bytes = as_bytes(piece).first(static_cast<std::size_t>(count));
    if (auto written = co_await stream->write(bytes); !written) break;  // the answer says why
    sent += static_cast<std::uint64_t>(count);
    bar_->add(static_cast<std::uint64_t>(count));
  }
  (void)co_await stream->finish_request();
  CO_TRY(const http::Response head, co_await stream->head());
  CO_TRY(const std::string answer, co_await stream->read_all(64 << 10));
  if (head.status >= 400) co_return fail(http::error_from_response(head.status, answer));
  ++result_.files;
  result_.bytes += size;
  co_return Result<>();
}

// The files API writes files and folders; a link is made by the guest's own ln. Its words are JSON, which has no place for other bytes.
Task<> Copier::upload_link(fs::path from, std::string to) {
  std::error_code error;
  const fs::path points_to = fs::read_symlink(from, error);
  if (error) co_return fail_errno(error.value(), from.string());
  if (!is_utf8(points_to.string()) || !is_utf8(to))
    co_return fail(ErrorKind::unsupported, "link_not_utf8",
                   fmt::format("a link that goes into a sandbox must be UTF-8, and lead to UTF-8: this one leads to {}",
                               printable(points_to.string())),
                   "make it by a command in the sandbox");
  json::object body;
  json::array argv = {"ln", "-sfn", "--", points_to.string(), to};
  body["argv"] = std::move(argv);
  if (!user_.empty()) body["user"] = user_;
  const std::string commands = TargetBuilder("/v1/sandboxes").segment(sandbox_).segment("commands").str();
  CO_TRY(const json::object created, co_await context_.api.send("POST", commands, std::move(body)));
  EventStreamOptions options;
  options.last_event = "exit";
  EventStream stream(context_.api, TargetBuilder(commands).segment(text_of(created, "session")).segment("attach").str(), options);
  for (;;) {
    CO_TRY(const std::optional<http::SseEvent> event, co_await stream.next());
    if (!event) break;
    if (event->event != "exit") continue;
    CO_TRY(const json::object exit, parse_json_object(event->data));
    if (number_of(exit, "code", 1) != 0)
      co_return fail(ErrorKind::invalid_argument, "link_failed", fmt::format("the guest could not make the link {}", to),
                     "see whether something is in its place, and whether the user may write there");
  }
  ++result_.files;
  co_return Result<>();
}

}  // namespace space::cli
