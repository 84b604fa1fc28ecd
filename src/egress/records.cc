#include "egress/records.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fmt/format.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/random.h"

namespace space::egress {
namespace {

constexpr std::size_t kLongestNames = NameMap::kMost * 256;
constexpr std::size_t kLongestChanges = 64 << 10;

Result<NameMap> read_names(const std::filesystem::path& file, bool& torn) {
  NameMap map;
  auto text = read_file(file, kLongestNames);
  if (!text) {
    if (text.error().kind == ErrorKind::not_found) return map;
    return fail(std::move(text).error());
  }
  std::string_view rest = *text;
  // A line without its end was being written when the machine stopped: no guest has heard of it.
  for (auto end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
    TRY_VOID(map.append(static_cast<std::uint32_t>(map.size() + 1), rest.substr(0, end)));
    rest.remove_prefix(end + 1);
  }
  torn = !rest.empty();
  return map;
}

Result<std::set<std::string>> read_changes(const std::filesystem::path& file) {
  std::set<std::string> changes;
  auto text = read_file(file, kLongestChanges);
  if (!text) {
    if (text.error().kind == ErrorKind::not_found) return changes;
    return fail(std::move(text).error());
  }
  std::string_view rest = *text;
  while (!rest.empty()) {
    const auto end = rest.find('\n');
    std::string change(rest.substr(0, end));
    if (end == std::string_view::npos || !is_id(change)) return fail(ErrorKind::internal, "bad_record", "the changes cannot be read");
    changes.insert(std::move(change));
    rest.remove_prefix(end + 1);
  }
  return changes;
}

}  // namespace

Result<> Records::open() const { return make_directories(folder_, 0700); }

Result<std::map<std::string, Records::Found>> Records::load() const {
  std::map<std::string, Found> found;
  TRY(const auto names, list_directory(folder_));
  for (const std::string& name : names) {
    std::string id = name.substr(0, name.find('.'));
    const bool has_settings = name == id + ".json";
    // A change that was announced for a sandbox without settings is known as well.
    if (!has_settings && (name != id + ".changes" || std::find(names.begin(), names.end(), id + ".json") != names.end())) continue;
    auto read = [&]() -> Result<Found> {
      Found record;
      if (has_settings) {
        TRY(const std::string text, read_file(folder_ / name, kLongestSettings));
        TRY(record.settings, parse_json_object(text, kLongestSettings));
      }
      bool torn = false;
      TRY(record.names, read_names(folder_ / (id + ".names"), torn));
      if (torn) TRY_VOID(save_names(id, record.names));
      TRY(record.changes, read_changes(folder_ / (id + ".changes")));
      if (const auto total = read_file(folder_ / (id + ".total"), 32))
        (void)std::from_chars(total->data(), total->data() + total->size(), record.total_bytes);
      return record;
    };
    auto record = read();
    if (!is_id(id) || !record) {
      log::error("egress.bad_record", {{"file", name}, {"error", record ? Error{} : record.error()}});
      continue;
    }
    found.emplace(id, std::move(*record));
  }
  return found;
}

Result<> Records::save(const std::string& id, const json::object& settings) const {
  return write_file_durable(folder_ / (id + ".json"), json::serialize(settings));
}

Result<> Records::save_changes(const std::string& id, const std::set<std::string>& changes) const {
  const auto file = folder_ / (id + ".changes");
  if (changes.empty()) {
    if (::unlink(file.c_str()) != 0 && errno != ENOENT) return fail_errno(errno, "remove a record");
    return {};
  }
  std::string text;
  for (const std::string& change : changes) text.append(change).push_back('\n');
  return write_file_durable(file, text);
}

Result<> Records::save_names(const std::string& id, const NameMap& names) const {
  std::string text;
  for (const std::string& name : names.names()) text.append(name).push_back('\n');
  return write_file_durable(folder_ / (id + ".names"), text);
}

Result<> Records::add_name(const std::string& id, const std::string& name) const {
  TRY(const Fd fd, open_file(folder_ / (id + ".names"), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW, 0600));
  return write_all(fd, name + "\n");
}

Result<> Records::sync_names(const std::string& id) const {
  const auto fd = open_file(folder_ / (id + ".names"), O_RDONLY | O_NOFOLLOW);
  if (!fd) {
    if (fd.error().kind == ErrorKind::not_found) return {};  // no name yet
    return fail(fd.error());
  }
  if (::fdatasync(fd->get()) != 0) return fail_errno(errno, "sync the names of a sandbox");
  return sync_directory(folder_);
}

Result<> Records::save_total(const std::string& id, std::int64_t bytes) const {
  // Of one length, in place: a cut-off write leaves digits of both, never less than a worker reports next.
  TRY(const Fd fd, open_file(folder_ / (id + ".total"), O_WRONLY | O_CREAT | O_NOFOLLOW, 0600));
  return write_all(fd, fmt::format("{:020}\n", bytes));
}

Result<> Records::remove(const std::string& id) const {
  for (const char* ending : {".json", ".changes", ".names", ".total"})
    if (::unlink((folder_ / (id + ending)).c_str()) != 0 && errno != ENOENT) return fail_errno(errno, "remove a record");
  return sync_directory(folder_);
}

}  // namespace space::egress
