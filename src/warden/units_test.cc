// Parts of the warden that need neither root nor a kernel that plays along.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/random.h"
#include "warden/cgroup.h"
#include "warden/jail.h"
#include "warden/jail_filter.h"
#include "warden/uid_slots.h"
#include "warden/vm_table.h"
#include "warden/vmm_build.h"

namespace space::warden {
namespace {

namespace fs = std::filesystem;
using ::testing::StartsWith;

// A folder with the files of a cgroup hierarchy; what is written to them stays to be read.
class FakeHost {
 public:
  FakeHost() : folder_(*TempDir::make("/tmp", "space-cgroup-test-")) {}
  fs::path path(const std::string& name) const { return folder_.path() / name; }
  void file(const std::string& name, const std::string& content = "") const {
    ASSERT_TRUE(make_directories(path(name).parent_path(), 0755));
    ASSERT_TRUE(write_file_durable(path(name), content));
  }
  std::string content(const std::string& name) const { return read_file(path(name), 4096).value_or("absent"); }
  Cgroups detect(const std::string& lines) const {
    file("mountinfo", lines);
    return Cgroups::detect(path("mountinfo"));
  }
  std::string mount(const std::string& name, const std::string& type, const std::string& options) const {
    return fmt::format("30 24 0:27 / {} rw,nosuid shared:9 - {} cgroup {}\n", path(name).string(), type, options);
  }

 private:
  TempDir folder_;
};

const std::string kVm = "abcdefghij0123456789abcd";
const wire::VmLimits kLimits{256 << 20, 150, 64, 0};

TEST(Cgroups, Version2IsUsedWhenItHasTheControllers) {
  FakeHost host;
  host.file("v2/cgroup.controllers", "cpuset cpu io memory hugetlb pids rdma\n");
  host.file("v2/cgroup.subtree_control", "cpu memory pids\n");
  // What the kernel would answer, behind what is going to be written.
  host.file("v2/space/cgroup.subtree_control", std::string(18, ' ') + " cpu memory pids\n");
  for (const char* name : {"memory.max", "memory.swap.max", "memory.oom.group", "cpu.max", "cpu.weight", "pids.max"})
    host.file(fmt::format("v2/space/{}/{}", kVm, name));
  const Cgroups groups = host.detect(host.mount("v2", "cgroup2", "rw,nsdelegate"));
  ASSERT_EQ(groups.kind(), "cgroup-v2");
  EXPECT_THAT(host.content("v2/space/cgroup.subtree_control"), StartsWith("+memory +cpu +pids"));
  auto entry = groups.make(kVm, kLimits);
  ASSERT_TRUE(entry) << describe(entry.error());
  EXPECT_TRUE(entry->into);
  EXPECT_TRUE(entry->tasks.empty());
  EXPECT_EQ(host.content(fmt::format("v2/space/{}/memory.max", kVm)), "268435456");
  EXPECT_EQ(host.content(fmt::format("v2/space/{}/memory.swap.max", kVm)), "0");
  EXPECT_EQ(host.content(fmt::format("v2/space/{}/memory.oom.group", kVm)), "1");
  EXPECT_EQ(host.content(fmt::format("v2/space/{}/cpu.max", kVm)), "150000 100000");
  EXPECT_EQ(host.content(fmt::format("v2/space/{}/pids.max", kVm)), "64");
  EXPECT_TRUE(groups.set_weight(kVm, 10));
  EXPECT_EQ(host.content(fmt::format("v2/space/{}/cpu.weight", kVm)), "10");
  EXPECT_EQ(groups.set_weight(kVm, 0).error().code, "bad_weight");
  EXPECT_EQ(groups.set_weight(kVm, 10'001).error().code, "bad_weight");
}

TEST(Cgroups, Version1IsUsedBesideAVersion2WithoutControllers) {
  FakeHost host;
  host.file("unified/cgroup.controllers", "\n");
  for (const char* name : {"memory.limit_in_bytes", "tasks"}) host.file(fmt::format("memory/space/{}/{}", kVm, name));
  for (const char* name : {"cpu.cfs_period_us", "cpu.cfs_quota_us", "cpu.shares", "tasks"})
    host.file(fmt::format("cpu,cpuacct/space/{}/{}", kVm, name));
  for (const char* name : {"pids.max", "tasks"}) host.file(fmt::format("pids/space/{}/{}", kVm, name));
  host.file("systemd/space/tasks");
  const std::string lines = host.mount("unified", "cgroup2", "rw") + host.mount("memory", "cgroup", "rw,memory") +
                            host.mount("cpu,cpuacct", "cgroup", "rw,cpu,cpuacct") + host.mount("pids", "cgroup", "rw,pids") +
                            host.mount("systemd", "cgroup", "rw,xattr,name=systemd");
  const Cgroups groups = host.detect(lines);
  ASSERT_EQ(groups.kind(), "cgroup-v1");
  auto entry = groups.make(kVm, kLimits);
  ASSERT_TRUE(entry) << describe(entry.error());
  EXPECT_TRUE(entry->into) << "out of the service's own group there";
  EXPECT_EQ(entry->tasks.size(), 4U);
  EXPECT_EQ(host.content(fmt::format("memory/space/{}/memory.limit_in_bytes", kVm)), "268435456");
  EXPECT_EQ(host.content(fmt::format("cpu,cpuacct/space/{}/cpu.cfs_quota_us", kVm)), "150000");
  EXPECT_EQ(host.content(fmt::format("cpu,cpuacct/space/{}/cpu.shares", kVm)), "")
      << "the jail is set up at the weight that a group has by itself";
  EXPECT_TRUE(groups.set_weight(kVm, kStartingWeight));
  EXPECT_EQ(host.content(fmt::format("cpu,cpuacct/space/{}/cpu.shares", kVm)), "102");
  EXPECT_TRUE(groups.set_weight(kVm, 50));
  EXPECT_EQ(host.content(fmt::format("cpu,cpuacct/space/{}/cpu.shares", kVm)), "512");
  EXPECT_EQ(host.content(fmt::format("pids/space/{}/pids.max", kVm)), "64");
  EXPECT_TRUE(groups.set_weight(kVm, 10));
  EXPECT_EQ(host.content(fmt::format("cpu,cpuacct/space/{}/cpu.shares", kVm)), "102");
}

TEST(Cgroups, AHostWithoutAllControllersHasNone) {
  FakeHost host;
  host.file("v2/cgroup.controllers", "cpuset cpu io memories pids\n");  // "memories" is not "memory"
  EXPECT_EQ(host.detect(host.mount("v2", "cgroup2", "rw")).kind(), "none");
  EXPECT_EQ(host.detect(host.mount("memory", "cgroup", "rw,memory")).kind(), "none");
  const Cgroups none = host.detect("");
  EXPECT_EQ(none.kind(), "none");
  EXPECT_TRUE(none.make(kVm, kLimits)) << "allowed, where the operator said so";
  EXPECT_EQ(none.set(kVm, kLimits).error().code, "no_limits");
  EXPECT_TRUE(none.remove(kVm));
}

TEST(VmmBuild, ReadsVersionsAndInterpreters) {
  EXPECT_EQ(version_in("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)\nCopyright"), "7.2.22");
  EXPECT_EQ(version_in("version x"), "unknown");
  EXPECT_EQ(version_in(""), "unknown");
  EXPECT_EQ(version_in("version " + std::string(100, '1')), "unknown");
  auto loader = elf_interpreter("/proc/self/exe");
  ASSERT_TRUE(loader) << describe(loader.error());
  EXPECT_THAT(*loader, ::testing::HasSubstr("/ld-linux"));
  auto none = elf_interpreter(SPACE_JAIL_PROBE);
  ASSERT_TRUE(none);
  EXPECT_EQ(*none, "");
  EXPECT_EQ(elf_interpreter("/proc/version").error().code, "vmm_not_a_program");
  EXPECT_FALSE(elf_interpreter("/nowhere"));
}

TEST(JailFilter, Compiles) {
  for (const bool kvm : {false, true}) {
    auto filter = jail_filter(kvm);
    ASSERT_TRUE(filter) << describe(filter.error());
    EXPECT_GT(filter->size(), 100U);
    EXPECT_LT(filter->size(), static_cast<std::size_t>(BPF_MAXINSNS));
  }
}

TEST(UidSlots, GivesEachUidOnceAndTheOldestFirst) {
  constexpr uid_t kFirst = 2'100'000'000;
  auto slots = UidSlots::claim(kFirst);
  ASSERT_TRUE(slots) << describe(slots.error());
  const uid_t a = *slots->take(), b = *slots->take();
  EXPECT_NE(a, b);
  slots->give_back(a);
  const uid_t c = *slots->take();
  EXPECT_NE(c, a) << "not at once again";
  slots->adopt(slots->first() + 10);
  std::set<uid_t> rest;
  while (auto uid = slots->take()) EXPECT_TRUE(rest.insert(*uid).second);
  EXPECT_EQ(rest.size(), UidSlots::kBlock - 3U) << "all but b, c and the adopted one";
  EXPECT_TRUE(rest.contains(a));
  EXPECT_EQ(slots->take().error().code, "too_many_vms");
  auto second = UidSlots::claim(kFirst);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->first(), slots->first() + UidSlots::kBlock);
}

TEST(VmTable, RemembersLivingProcessesAndNoOthers) {
  auto folder = TempDir::make("/tmp", "space-vm-table-test-");
  ASSERT_TRUE(folder);
  const std::string self = new_id(), reused = new_id(), damaged = new_id(), bare = new_id();
  {
    VmTable table(folder->path());
    for (const std::string& id : {self, reused, damaged, bare}) ASSERT_TRUE(table.make(id));
    Vm& vm = *table.find(self);
    vm.uid = 4711;
    vm.pid = ::getpid();
    vm.start_time = *process_start_time(::getpid());
    ASSERT_TRUE(table.record(vm));
    Vm other{reused, 4712, ::getpid(), vm.start_time + 1, {}, false};
    ASSERT_TRUE(table.record(other));
    ASSERT_TRUE(write_file_durable(folder->path() / damaged / "vmm", "rubbish"));
  }
  ASSERT_TRUE(make_directories(folder->path() / "not an id", 0700));
  VmTable table(folder->path());
  ASSERT_TRUE(table.load());
  EXPECT_EQ(table.all().size(), 4U);
  EXPECT_TRUE(table.find(self)->alive());
  EXPECT_EQ(table.find(self)->uid, 4711U);
  EXPECT_FALSE(table.find(reused)->alive()) << "the pid went to another process";
  EXPECT_FALSE(table.find(damaged)->alive());
  EXPECT_FALSE(table.find(bare)->alive());
  EXPECT_EQ(table.need(new_id()).error().code, "vm_unknown");
  EXPECT_TRUE(table.erase(self));
  EXPECT_TRUE(table.erase(self));
  EXPECT_FALSE(fs::exists(folder->path() / self));
}

}  // namespace
}  // namespace space::warden
