#include "build/record.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/file.h"
#include "base/log.h"
#include "base/random.h"

namespace space::build {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kRecordBytes = 16 << 20, kLogBytes = 32 << 20;

std::optional<BuildState> state_of(std::string_view text) {
  for (const BuildState state : {BuildState::waiting, BuildState::building, BuildState::ready, BuildState::failed, BuildState::cancelled})
    if (to_string(state) == text) return state;
  return std::nullopt;
}

json::object write_entry(const LogEntry& entry) {
  return {{"time_ms", entry.time_ms}, {"level", entry.level}, {"step", entry.step}, {"message", entry.message}};
}

}  // namespace

std::string_view to_string(BuildState state) {
  switch (state) {
    case BuildState::waiting:
      return "waiting";
    case BuildState::building:
      return "building";
    case BuildState::ready:
      return "ready";
    case BuildState::failed:
      return "failed";
    case BuildState::cancelled:
      return "cancelled";
  }
  return "";
}

json::object write_build(const Build& b) {
  json::object out{{"format", 1},
                   {"id", b.id},
                   {"tenant", b.tenant},
                   {"name", b.name},
                   {"tag", b.tag},
                   {"state", to_string(b.state)},
                   {"spec", write_spec(b.spec)},
                   {"alias_tags", b.alias_tags},
                   {"digest", b.digest},
                   {"failed_step", b.failed_step},
                   {"created_ms", b.created_ms},
                   {"started_ms", b.started_ms},
                   {"finished_ms", b.finished_ms}};
  if (b.error)
    out["error"] =
        json::object{{"kind", http_status(b.error->kind)}, {"code", b.error->code}, {"message", b.error->message}, {"next", b.error->next}};
  return out;
}

Result<Build> read_build(std::string_view text) {
  const auto wrong = [](std::string_view why) {
    return fail(ErrorKind::corrupt, "build_unreadable", fmt::format("the record of a build cannot be read: {}", why));
  };
  auto object = parse_json_object(text, kRecordBytes);
  if (!object) return wrong(object.error().message);
  JsonReader r(*object);
  Build b;
  r.number("format", 1, 1);
  b.id = r.text("id", 20, 40);
  b.tenant = r.text("tenant", 1, 64);
  b.name = r.text("name", 1, 64);
  b.tag = r.text("tag", 1, 64);
  const auto state = state_of(r.text("state", 1, 16));
  b.alias_tags = r.text("alias_tags", 0, 4096, "");
  b.digest = r.text("digest", 0, 71, "");
  b.failed_step = r.text("failed_step", 0, 16, "");
  b.created_ms = r.number("created_ms", 0, INT64_MAX);
  b.started_ms = r.number("started_ms", 0, INT64_MAX, 0);
  b.finished_ms = r.number("finished_ms", 0, INT64_MAX, 0);
  if (const json::object* error = r.object("error")) {
    JsonReader e(*error, "error");
    b.error = Error{error_kind_from_http(static_cast<int>(e.number("kind", 400, 599, 500))), e.text("code", 1, 64),
                    e.text("message", 0, 64 << 10), e.text("next", 0, 4096, "")};
    if (auto done = e.done(); !done) r.reject("error", done.error().message);
  }
  const json::object* spec = r.object("spec");
  if (auto done = r.done(); !done) return wrong(done.error().message);
  if (!state || !spec || !is_id(b.id)) return wrong("a field is missing");
  auto read = read_spec(*spec);
  if (!read) return wrong(read.error().message);
  b.state = *state;
  b.spec = std::move(*read);
  return b;
}

Result<> BuildFiles::save(const Build& build) const {
  TRY_VOID(make_directories(root_));
  return write_file_durable(root_ / (build.id + ".json"), json::serialize(write_build(build)) + "\n");
}

Result<> BuildFiles::append(const std::string& id, const std::vector<LogEntry>& entries) const {
  if (entries.empty()) return {};
  std::string text;
  for (const LogEntry& entry : entries) text += json::serialize(write_entry(entry)) + "\n";
  TRY(const Fd file, open_file(root_ / (id + ".log"), O_WRONLY | O_CREAT | O_APPEND));
  return write_all(file, text);
}

Result<std::vector<LogEntry>> BuildFiles::log(const std::string& id) const {
  std::vector<LogEntry> out;
  auto text = read_file(root_ / (id + ".log"), kLogBytes);
  if (!text) return text.error().kind == ErrorKind::not_found ? Result<std::vector<LogEntry>>(out) : fail(std::move(text).error());
  for (std::size_t at = 0; at < text->size();) {
    const std::size_t end = std::min(text->find('\n', at), text->size());
    auto object = parse_json_object(std::string_view(*text).substr(at, end - at), 64 << 10);
    at = end + 1;
    if (!object) continue;
    JsonReader r(*object);
    LogEntry entry{r.number("time_ms", 0, INT64_MAX), r.text("level", 1, 8), r.text("step", 0, 16, ""), r.text("message", 0, 32 << 10, "")};
    if (r.done()) out.push_back(std::move(entry));
  }
  return out;
}

Result<> BuildFiles::clear_log(const std::string& id) const { return remove_tree(root_ / (id + ".log")); }

Result<std::vector<Build>> BuildFiles::all() const {
  TRY_VOID(make_directories(root_));
  TRY(const auto names, list_directory(root_));
  std::vector<Build> out;
  for (const std::string& name : names) {
    if (!name.ends_with(".json") || !is_id(name.substr(0, name.size() - 5))) continue;
    auto text = read_file(root_ / name, kRecordBytes);
    Result<Build> build = text ? read_build(*text) : fail(text.error());
    if (build)
      out.push_back(std::move(*build));
    else
      log::warn("build.unreadable", {{"file", name}, {"error", build.error()}});
  }
  std::sort(out.begin(), out.end(), [](const Build& a, const Build& b) { return a.created_ms < b.created_ms; });
  return out;
}

Result<> BuildFiles::remove(const std::string& id) const {
  TRY_VOID(remove_tree(root_ / (id + ".log")));
  return remove_tree(root_ / (id + ".json"));
}

}  // namespace space::build
