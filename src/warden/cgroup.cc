#include "warden/cgroup.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"

namespace space::warden {
namespace fs = std::filesystem;
namespace {

constexpr const char* kParent = "space";
constexpr std::uint64_t kPeriodUs = 100'000;
constexpr std::string_view kControllers[] = {"memory", "cpu", "pids"};

struct Mounts {
  fs::path v2;
  std::map<std::string, fs::path> v1;  // by controller or "name=…"
};

// proc(5): … mount point after four fields, then " - " type, source, options of the filesystem.
Mounts read_mounts(const fs::path& mountinfo) {
  Mounts found;
  const auto text = read_file(mountinfo, 4 << 20);
  std::istringstream lines(text.value_or(""));
  for (std::string line; std::getline(lines, line);) {
    const auto dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream before(line), after(line.substr(dash + 3));
    std::string skip, point, type, source, options;
    before >> skip >> skip >> skip >> skip >> point;
    after >> type >> source >> options;
    if (type == "cgroup2" && found.v2.empty()) found.v2 = point;
    if (type != "cgroup") continue;
    std::istringstream names(options);
    for (std::string name; std::getline(names, name, ',');) found.v1.try_emplace(name, point);
  }
  return found;
}

// Files of cgroupfs take a value in one write(2).
Result<> put(const fs::path& file, const std::string& value) {
  TRY(Fd fd, open_file(file, O_WRONLY));
  if (::write(fd.get(), value.data(), value.size()) < 0) return fail_errno(errno, fmt::format("write {} to {}", value, file.string()));
  return {};
}

Result<> make_group(const fs::path& path) {
  if (::mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) return fail_errno(errno, fmt::format("make the cgroup {}", path.string()));
  return {};
}

bool has_controllers(const fs::path& file) {
  std::istringstream text(read_file(file, 65536).value_or(""));
  const std::set<std::string, std::less<>> have(std::istream_iterator<std::string>(text), {});
  return std::all_of(std::begin(kControllers), std::end(kControllers), [&](std::string_view name) { return have.contains(name); });
}

// Hands the controllers down through `space`, so that its children have limits.
bool usable_v2(const fs::path& mount) {
  if (mount.empty() || !has_controllers(mount / "cgroup.controllers")) return false;
  const fs::path parent = mount / kParent;
  const std::string all = "+memory +cpu +pids";
  (void)put(mount / "cgroup.subtree_control", all);  // usually so already; the next check decides
  return make_group(parent) && put(parent / "cgroup.subtree_control", all) && has_controllers(parent / "cgroup.subtree_control");
}

std::string amount(std::uint64_t value, std::string_view unlimited) { return value == 0 ? std::string(unlimited) : std::to_string(value); }

}  // namespace

Cgroups Cgroups::detect(const fs::path& mountinfo) {
  Cgroups groups;
  const Mounts mounts = read_mounts(mountinfo);
  if (usable_v2(mounts.v2)) {
    groups.version_ = Version::v2;
    groups.hierarchies_.push_back({mounts.v2 / kParent, ""});
    return groups;
  }
  for (std::string_view controller : kControllers) {
    const auto mount = mounts.v1.find(std::string(controller));
    if (mount == mounts.v1.end() || !make_group(mount->second / kParent)) return {};
    groups.hierarchies_.push_back({mount->second / kParent, controller});
  }
  groups.version_ = Version::v1;
  if (const auto systemd = mounts.v1.find("name=systemd"); systemd != mounts.v1.end() && make_group(systemd->second / kParent))
    groups.others_.push_back(systemd->second / kParent);
  if (!mounts.v2.empty() && make_group(mounts.v2 / kParent)) groups.unified_ = mounts.v2 / kParent;
  return groups;
}

std::string Cgroups::kind() const { return version_ == Version::v2 ? "cgroup-v2" : version_ == Version::v1 ? "cgroup-v1" : "none"; }

Result<> Cgroups::write_limits(const Hierarchy& h, const std::string& vm, const wire::VmLimits& limits) const {
  const fs::path group = h.root / vm;
  const std::uint64_t quota = limits.cpu_percent * kPeriodUs / 100;
  if (version_ == Version::v2) {
    TRY_VOID(put(group / "memory.max", amount(limits.memory_bytes, "max")));
    (void)put(group / "memory.swap.max", "0");  // absent without swap; a VM that is over its memory ends, it does not crawl
    (void)put(group / "memory.oom.group", "1");
    TRY_VOID(put(group / "cpu.max", fmt::format("{} {}", amount(quota, "max"), kPeriodUs)));
    return put(group / "pids.max", amount(limits.tasks, "max"));
  }
  if (h.controller == "memory") {
    const std::string bytes = amount(limits.memory_bytes, "-1");
    // Memory may never be over memory plus swap, so raising wants the second first: whichever order is right, this is it.
    (void)put(group / "memory.limit_in_bytes", bytes);
    if (auto swap = put(group / "memory.memsw.limit_in_bytes", bytes); !swap && swap.error().kind != ErrorKind::not_found) return swap;
    return put(group / "memory.limit_in_bytes", bytes);
  }
  if (h.controller == "cpu") {
    TRY_VOID(put(group / "cpu.cfs_period_us", std::to_string(kPeriodUs)));
    return put(group / "cpu.cfs_quota_us", amount(quota, "-1"));
  }
  return put(group / "pids.max", amount(limits.tasks, "max"));
}

Result<CgroupEntry> Cgroups::make(const std::string& vm, const wire::VmLimits& limits) const {
  CgroupEntry entry;
  auto group = [&](const fs::path& path) -> Result<> {
    if (version_ == Version::v2) {
      TRY(entry.into, open_file(path, O_RDONLY | O_DIRECTORY));
      return {};
    }
    TRY(Fd tasks, open_file(path / "tasks", O_WRONLY));
    entry.tasks.push_back(std::move(tasks));
    return {};
  };
  for (const Hierarchy& h : hierarchies_) {
    TRY_VOID(make_group(h.root / vm));
    TRY_VOID(write_limits(h, vm, limits));
    TRY_VOID(group(h.root / vm));
  }
  for (const fs::path& other : others_) TRY_VOID(group(other));
  if (!unified_.empty()) {
    TRY(entry.into, open_file(unified_, O_RDONLY | O_DIRECTORY));
  }
  return entry;
}

Result<> Cgroups::set(const std::string& vm, const wire::VmLimits& limits) const {
  if (version_ == Version::none) return fail(ErrorKind::unsupported, "no_limits", "this host has no cgroup controllers for limits");
  for (const Hierarchy& h : hierarchies_) TRY_VOID(write_limits(h, vm, limits));
  return {};
}

Result<> Cgroups::set_weight(const std::string& vm, std::uint32_t weight) const {
  if (weight < 1 || weight > 10'000) return fail(ErrorKind::invalid_argument, "bad_weight", "a weight is 1 to 10,000");
  for (const Hierarchy& h : hierarchies_) {
    if (version_ == Version::v2) TRY_VOID(put(h.root / vm / "cpu.weight", std::to_string(weight)));
    // Of 1,024 where version 2 has 100; at least 2.
    if (h.controller == "cpu") TRY_VOID(put(h.root / vm / "cpu.shares", std::to_string(std::max(2u, weight * 1024 / 100))));
  }
  return {};
}

Result<> Cgroups::remove(const std::string& vm) const {
  for (const Hierarchy& h : hierarchies_) {
    const fs::path group = h.root / vm;
    // A process that just ended may still stand in its group for a moment.
    for (int attempt = 0; ::rmdir(group.c_str()) != 0 && errno != ENOENT; ++attempt) {
      if (errno != EBUSY || attempt == 20) return fail_errno(errno, fmt::format("remove the cgroup {}", group.string()));
      ::usleep(1000);
    }
  }
  return {};
}

}  // namespace space::warden
