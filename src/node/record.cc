#include "node/record.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <thread>

#include "base/file.h"
#include "base/json.h"
#include "base/random.h"

namespace space::node {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kMaxRecord = 1 << 20;
constexpr int kVersion = 1;
constexpr std::size_t kMostLayers = 64, kMostMounts = 64;

// A path is made of an id only after this check, whoever the id came from.
Result<> check_id(const std::string& id) {
  if (is_id(id)) return {};
  return fail(ErrorKind::invalid_argument, "invalid_id", "an id has 20 to 40 characters of a-z and 0-9");
}

// What could not be read again would cost the sandbox at the next start.
Result<std::string> readable(const SandboxRecord& record) {
  std::string text = encode_record(record);
  if (text.size() <= kMaxRecord) return text;
  return fail(ErrorKind::invalid_argument, "record_too_large",
              fmt::format("the settings of the sandbox take {} bytes, more than {}", text.size(), kMaxRecord),
              "take variables out of its environment, or labels");
}

}  // namespace

bool is_disk_name(std::string_view name) { return name == "disk.qcow2" || (name.starts_with("disk-") && is_id(name.substr(5))); }

std::string encode_record(const SandboxRecord& r) {
  json::object env;
  for (const auto& [name, value] : r.env) env[name] = value;
  json::array spans;
  for (const Span& s : r.create_spans)
    spans.push_back(json::object{{"name", s.name}, {"start_us", s.start_us}, {"duration_us", s.duration_us}});
  json::array layers;
  for (const snapshot::BlobRef& layer : r.layers) layers.push_back(json::object{{"digest", layer.digest}, {"bytes", layer.bytes}});
  json::object o{{"version", kVersion},
                 {"id", r.id},
                 {"tenant", r.tenant},
                 {"template", r.template_reference},
                 {"template_digest", r.template_digest},
                 {"cpus", r.size.cpus},
                 {"memory_mib", r.size.memory_mib},
                 {"disk_mib", r.size.disk_mib},
                 {"vm", r.vm},
                 {"base_key", r.base_key},
                 {"epoch", r.epoch},
                 {"env", std::move(env)},
                 {"hostname", r.hostname},
                 {"machine_id", r.machine_id},
                 {"state", to_string(r.state)},
                 {"end_reason", r.end_reason},
                 {"create_operation", r.create_operation},
                 {"last_operation", r.last_operation},
                 {"create_spans", std::move(spans)},
                 {"created_ms", r.created_ms},
                 {"layers", std::move(layers)},
                 {"disks", json::value_from(r.disks)},
                 {"booted", r.booted},
                 {"saved", r.saved},
                 {"checkpoint", r.checkpoint},
                 {"origin", r.origin},
                 {"lineage", r.lineage},
                 {"inherited", r.inherited},
                 {"processes", r.processes},
                 {"base_content", r.base_content},
                 {"vmm_build", r.vmm_build},
                 {"state_key", r.state_key},
                 {"snapshot_every_s", r.snapshot_every_s},
                 {"snapshot_keep", r.snapshot_keep}};
  if (!r.mounts.empty()) {
    json::array& mounts = o["mounts"].emplace_array();
    for (const VolumeMount& mount : r.mounts) mounts.push_back(json::object{{"volume", mount.volume}, {"path", mount.path}});
  }
  if (!r.kept.empty()) o["kept"] = r.kept;
  if (r.loaded) o["loaded"] = true;
  if (r.unfrozen) o["unfrozen"] = true;
  return json::serialize(o) + "\n";
}

Result<SandboxRecord> decode_record(std::string_view text) {
  auto unreadable = [](std::string why) {
    return fail(ErrorKind::corrupt, "record_unreadable", fmt::format("the sandbox's record cannot be read: {}", why),
                "delete the sandbox; check the disk when it was not cut short by hand");
  };
  auto parsed = parse_json_object(text, kMaxRecord);
  if (!parsed) return unreadable(parsed.error().message);
  JsonReader in(*parsed);
  SandboxRecord r;
  in.number("version", kVersion, kVersion);
  r.id = in.text("id", 20, 40);
  r.tenant = in.text("tenant", 0, 128);
  r.template_reference = in.text("template", 0, 256);
  r.template_digest = in.text("template_digest", 0, 128);
  r.size.cpus = static_cast<std::uint32_t>(in.number("cpus", 0, 1 << 10));
  r.size.memory_mib = static_cast<std::uint32_t>(in.number("memory_mib", 0, 1 << 30));
  r.size.disk_mib = static_cast<std::uint32_t>(in.number("disk_mib", 0, 1 << 30));
  r.vm = in.text("vm", 20, 40);
  r.base_key = in.text("base_key", 0, 128);
  r.epoch = static_cast<std::uint64_t>(in.number("epoch", 1, std::int64_t{1} << 52));
  r.env = in.text_map("env", 1024, 128 << 10);
  r.hostname = in.text("hostname", 0, 64);
  r.machine_id = in.text("machine_id", 0, 32);
  const std::string state = in.text("state", 1, 32);
  r.end_reason = in.text("end_reason", 0, 1024);
  r.create_operation = in.text("create_operation", 0, 128);
  r.last_operation = in.text("last_operation", 0, 128);
  if (const json::array* spans = in.array("create_spans", 64)) {
    for (const json::value& item : *spans) {
      if (!item.is_object()) return unreadable("create_spans must hold objects");
      JsonReader span(item.get_object(), "create_spans");
      Span s{span.text("name", 1, 64), span.number("start_us", 0, INT64_MAX), span.number("duration_us", 0, INT64_MAX)};
      if (auto ok = span.done(); !ok) return unreadable(ok.error().message);
      r.create_spans.push_back(std::move(s));
    }
  }
  r.created_ms = in.number("created_ms", 0, INT64_MAX);
  if (const json::array* layers = in.array("layers", kMostLayers)) {
    for (const json::value& item : *layers) {
      if (!item.is_object()) return unreadable("layers must hold objects");
      JsonReader layer(item.get_object(), "layers");
      snapshot::BlobRef ref{layer.text("digest", 1, 80), static_cast<std::uint64_t>(layer.number("bytes", 0, INT64_MAX))};
      if (auto ok = layer.done(); !ok) return unreadable(ok.error().message);
      if (!snapshot::is_digest(ref.digest)) return unreadable("a layer's digest is malformed");
      r.layers.push_back(std::move(ref));
    }
  }
  if (in.has("disks")) r.disks = in.texts("disks", kMostLayers, 64);
  r.booted = in.boolean("booted", false);
  r.saved = in.text("saved", 0, 40, "");
  r.loaded = in.boolean("loaded", false);
  r.unfrozen = in.boolean("unfrozen", false);
  r.checkpoint = in.text("checkpoint", 0, 40, "");
  r.origin = in.text("origin", 0, 40, "");
  r.lineage = in.text("lineage", 0, 40, "");
  r.inherited = static_cast<std::uint64_t>(in.number("inherited", 0, INT64_MAX, 0));
  r.processes = static_cast<std::uint64_t>(in.number("processes", 0, INT64_MAX, 0));
  r.base_content = in.text("base_content", 0, 64, "");
  r.vmm_build = in.text("vmm_build", 0, 64, "");
  r.state_key = in.text("state_key", 0, 80, "");
  r.snapshot_every_s = in.number("snapshot_every_s", 0, 1 << 24, 0);
  r.snapshot_keep = in.number("snapshot_keep", 1, 1 << 20, kSnapshotsKept);
  if (const json::array* mounts = in.has("mounts") ? in.array("mounts", kMostMounts) : nullptr)
    for (const json::value& item : *mounts) {
      if (!item.is_object()) return unreadable("mounts must hold objects");
      JsonReader mount(item.get_object(), "mounts");
      r.mounts.push_back({mount.text("volume", 20, 40), mount.text("path", 1, 4095)});
      if (auto ok = mount.done(); !ok) return unreadable(ok.error().message);
      if (!is_id(r.mounts.back().volume)) return unreadable("an id is malformed");
    }
  r.kept = in.text("kept", 0, kMostKept, "");
  if (auto ok = in.done(); !ok) return unreadable(ok.error().message);
  const auto known = state_from(state);
  if (!known) return unreadable("unknown state");
  if (!is_id(r.id) || !is_id(r.vm)) return unreadable("an id is malformed");
  for (const std::string* id : {&r.saved, &r.checkpoint, &r.origin, &r.lineage})
    if (!id->empty() && !is_id(*id)) return unreadable("an id is malformed");
  if (r.disks.empty() || !std::all_of(r.disks.begin(), r.disks.end(), is_disk_name)) return unreadable("a disk's name is malformed");
  r.state = *known;
  return r;
}

Result<> check_variables(const std::map<std::string, std::string>& env) {
  std::size_t bytes = 0;
  for (const auto& [name, value] : env) bytes += name.size() + value.size();
  if (env.size() <= kMostVariables && bytes <= kMostVariableBytes) return {};
  return fail(
      ErrorKind::invalid_argument, "invalid_field",
      fmt::format("env must have at most {} names and {} kB in all, with those that are there", kMostVariables, kMostVariableBytes >> 10),
      "take some out: give them null");
}

Result<> RecordStore::open(std::chrono::milliseconds patience) {
  for (const char* folder : {"sandboxes", "pool", "trash", "spool"}) TRY_VOID(make_directories(root_ / folder, 0700));
  TRY(lock_, open_file(root_ / "lock", O_RDWR | O_CREAT));
  for (const auto until = std::chrono::steady_clock::now() + patience; ::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0;) {
    if (errno != EWOULDBLOCK) return fail_errno(errno, "lock the node's folder");
    if (std::chrono::steady_clock::now() >= until)
      return fail(ErrorKind::conflict, "node_already_running", fmt::format("another node works on {}", root_.string()),
                  "stop it, or give this one a data folder of its own");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return {};
}

Result<fs::path> RecordStore::make_pool_folder(const std::string& vm) const {
  TRY_VOID(check_id(vm));
  const fs::path folder = root_ / "pool" / vm;
  TRY_VOID(make_directories(folder, 0700));
  return folder;
}

Result<> RecordStore::remove_pool_folder(const std::string& vm) const {
  TRY_VOID(check_id(vm));
  return remove_tree(root_ / "pool" / vm);
}

Result<> RecordStore::publish(const SandboxRecord& record) const {
  TRY_VOID(check_id(record.id));
  TRY_VOID(check_id(record.vm));
  const fs::path from = root_ / "pool" / record.vm;
  const fs::path to = root_ / "sandboxes" / record.id;
  // Its disk too: after a power cut an image whose first bytes never arrived is none, and the sandbox could not be started.
  for (const std::string& name : record.disks) {
    const auto disk = open_file(from / name, O_RDONLY);
    if (!disk && disk.error().kind != ErrorKind::not_found) return fail(disk.error());
    if (disk && ::fdatasync(disk->get()) != 0) return fail_errno(errno, "sync a disk image");
  }
  TRY(const std::string text, readable(record));
  TRY_VOID(write_file_durable(from / "record.json", text));
  if (::rename(from.c_str(), to.c_str()) != 0) return fail_errno(errno, "publish the sandbox's record");
  auto durable = sync_directory(root_ / "sandboxes");
  if (!durable) (void)::rename(to.c_str(), from.c_str());
  return durable;
}

Result<> RecordStore::update(const SandboxRecord& record) const {
  TRY(StagedFile staged, stage(record));
  return staged.publish();
}

Result<StagedFile> RecordStore::stage(const SandboxRecord& record) const {
  TRY_VOID(check_id(record.id));
  TRY(const std::string text, readable(record));
  return StagedFile::write(root_ / "sandboxes" / record.id / "record.json", text);
}

Result<> RecordStore::discard(const std::string& id) const {
  TRY_VOID(check_id(id));
  const fs::path from = root_ / "sandboxes" / id;
  const fs::path to = root_ / "trash" / id;
  if (::rename(from.c_str(), to.c_str()) == 0 || errno == ENOENT) return {};
  if (errno != ENOTEMPTY && errno != EEXIST) return fail_errno(errno, "discard the sandbox's folder");
  TRY_VOID(remove_tree(to));  // an older life of the same id whose removal was cut off
  if (::rename(from.c_str(), to.c_str()) == 0 || errno == ENOENT) return {};
  return fail_errno(errno, "discard the sandbox's folder");
}

Result<> RecordStore::purge(const std::string& id) const {
  TRY_VOID(check_id(id));
  TRY_VOID(remove_tree(root_ / "trash" / id));
  return sync_directory(root_ / "sandboxes");
}

Result<std::vector<RecordStore::Found>> RecordStore::read_all(const char* folder) const {
  std::vector<Found> found;
  TRY(auto names, list_directory(root_ / folder));
  for (std::string& name : names) {
    if (!is_id(name)) continue;  // not ours; nothing here ever made it
    auto text = read_file(root_ / folder / name / "record.json", kMaxRecord);
    Result<SandboxRecord> record = text ? decode_record(*text) : Result<SandboxRecord>(tl::unexpected(text.error()));
    if (record && record->id != name)
      record = fail(ErrorKind::corrupt, "record_unreadable", "the sandbox's record names another sandbox", "delete the sandbox");
    found.push_back({std::move(name), std::move(record)});
  }
  return found;
}

Result<std::vector<RecordStore::Found>> RecordStore::sandboxes() const { return read_all("sandboxes"); }
Result<std::vector<RecordStore::Found>> RecordStore::trash() const { return read_all("trash"); }

Result<std::vector<std::string>> RecordStore::pool() const {
  TRY(auto names, list_directory(root_ / "pool"));
  std::erase_if(names, [](const std::string& name) { return !is_id(name); });
  return names;
}

}  // namespace space::node
