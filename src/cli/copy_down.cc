#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/encoding.h"
#include "base/file.h"
#include "base/random.h"
#include "cli/copy.h"

namespace space::cli {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kDownPiece = 256 << 10;

// A field as bytes: what is not UTF-8 comes in base64 beside a readable form. Nothing when that is no base64.
std::optional<std::string> bytes_of(const json::object& entry, const std::string& name) {
  const std::string encoded = text_of(entry, name + "_base64");
  return encoded.empty() ? std::optional(text_of(entry, name)) : base64_decode(encoded);
}

Result<std::string> name_of(const json::object& entry) {
  auto name = bytes_of(entry, "name");
  if (name && is_plain_name(*name)) return std::move(*name);
  return fail(ErrorKind::invalid_argument, "bad_name",
              fmt::format("the sandbox has a file whose name cannot be used here: \"{}\"", text_of(entry, "name")));
}

// Where a link leads. It is not followed here, so it may lead anywhere; its bytes are kept, or it is not made.
Result<std::string> target_of_link(const json::object& entry) {
  auto target = bytes_of(entry, "target");
  if (target && !target->empty() && target->find('\0') == std::string::npos) return std::move(*target);
  return fail(ErrorKind::invalid_argument, "bad_link",
              fmt::format("the sandbox does not say where its link \"{}\" leads", text_of(entry, "name")));
}

unsigned mode_of(const json::object& entry, unsigned absent) {
  const std::string text = text_of(entry, "mode");
  const unsigned long mode = std::strtoul(text.c_str(), nullptr, 8);
  return text.empty() || mode > 07777 ? absent : static_cast<unsigned>(mode) & 0777;
}

std::string last_segment(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path.substr(path.rfind('/') + 1);
}

Result<> make_local_folder(const fs::path& path) {
  if (::mkdir(path.c_str(), 0700) == 0) return {};
  struct stat info {};
  if (errno == EEXIST && ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) return {};
  return fail_errno(errno == EEXIST ? ENOTDIR : errno, path.string());
}

}  // namespace

Task<> Copier::down(std::string from, fs::path to) {
  const std::string place = from.empty() ? "." : from;
  CO_TRY(const auto entry, co_await stat(place));
  if (!entry)
    co_return fail(ErrorKind::not_found, "no_such_file", fmt::format("{} is not in the sandbox", from),
                   "a path that is not absolute begins in the user's home");
  std::error_code ignored;
  if (fs::is_directory(to, ignored) || to.string().ends_with('/')) {
    const std::string name = last_segment(from);
    to /= is_plain_name(name) ? name : "files";
  }
  bar_ = std::make_unique<ProgressBar>(to.filename().string(), 0, true);
  if (text_of(*entry, "type") != "dir") {
    bar_->expect(static_cast<std::uint64_t>(number_of(*entry, "size")));
    co_return co_await download_file(from, to, *entry);
  }
  CO_TRY_VOID(co_await download_folder(from, to, mode_of(*entry, 0755)));
  CO_TRY_VOID(co_await run_jobs());
  co_return make_local_links();
}

Task<> Copier::download_folder(std::string from, fs::path to, unsigned mode) {
  CO_TRY_VOID(make_local_folder(to));
  folder_modes_.emplace_back(to, mode);
  CO_TRY(const json::array entries, co_await context_.api.list(target("list", from), "entries"));
  for (const json::value& item : entries) {
    if (!item.is_object()) continue;
    const json::object& entry = item.get_object();
    const std::string within = from.ends_with('/') ? from : from + "/";
    auto name = name_of(entry);
    if (!name) {
      CO_TRY_VOID(failed(within + text_of(entry, "name"), name.error()));
      continue;
    }
    const std::string remote = within + *name;
    const fs::path local = to / *name;
    const std::string type = text_of(entry, "type");
    if (type == "dir") {
      jobs_.push_back({remote, [this, remote, local, inner = mode_of(entry, 0755)] { return download_folder(remote, local, inner); }});
    } else if (type == "file") {
      bar_->expect(static_cast<std::uint64_t>(number_of(entry, "size")));
      jobs_.push_back({remote, [this, remote, local, entry] { return download_file(remote, local, entry); }});
    } else if (type == "symlink") {
      auto points_to = target_of_link(entry);
      if (points_to) links_.push_back({remote, local, std::move(*points_to)});
      if (!points_to) CO_TRY_VOID(failed(remote, points_to.error()));
    } else {
      ++result_.skipped;
      context_.console.note(fmt::format("space: skipped {}: neither file, folder nor link", printable(remote)));
    }
  }
  co_return Result<>();
}

// Written aside and renamed: what stood there before is whole until the new one is.
Task<> Copier::download_file(std::string from, fs::path to, json::object entry) {
  CO_TRY(const auto stream, co_await context_.api.open("GET", target("content", from)));
  CO_TRY(const http::Response head, co_await stream->head());
  if (head.status != 200) {
    auto answer = co_await stream->read_all(64 << 10);
    co_return fail(http::error_from_response(head.status, answer ? *answer : ""));
  }
  const fs::path aside = to.parent_path() / fmt::format(".space-{}", new_id());
  CO_TRY(Fd file, open_file(aside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600));
  std::string piece(kDownPiece, '\0');
  Result<> written;
  std::uint64_t size = 0;
  while (written) {
    auto count = co_await stream->read(std::as_writable_bytes(std::span(piece)));
    if (!count) written = tl::unexpected(count.error());
    if (!count || *count == 0) break;
    const std::string_view bytes = std::string_view(piece).substr(0, *count);
    const auto write = [&] { return write_all(file, bytes); };
    written = co_await context_.pool.run(write);
    size += *count;
    bar_->add(*count);
  }
  if (written && ::fchmod(file.get(), mode_of(entry, 0644)) != 0) written = fail_errno(errno, aside.string());
  if (written && ::rename(aside.c_str(), to.c_str()) != 0) written = fail_errno(errno, to.string());
  if (!written) {
    ::unlink(aside.c_str());
    co_return written;
  }
  ++result_.files;
  result_.bytes += size;
  co_return Result<>();
}

Result<> Copier::make_local_links() {
  for (const Link& link : links_) {
    struct stat info {};
    if (::lstat(link.to.c_str(), &info) == 0 && S_ISLNK(info.st_mode)) ::unlink(link.to.c_str());
    if (::symlink(link.points_to.c_str(), link.to.c_str()) == 0)
      ++result_.files;
    else
      TRY_VOID(failed(link.from, fail_errno(errno, link.to.string()).value()));
  }
  // The innermost first: an outer folder may become one that cannot be entered.
  for (auto folder = folder_modes_.rbegin(); folder != folder_modes_.rend(); ++folder)
    if (::chmod(folder->first.c_str(), folder->second) != 0)
      TRY_VOID(failed(folder->first.string(), fail_errno(errno, folder->first.string()).value()));
  return {};
}

}  // namespace space::cli
