#include "vmm/qemu_arguments.h"

#include <algorithm>
#include <cstdlib>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/random.h"
#include "vmm/tsc.h"

namespace space::vmm {
namespace {

Fd memfd(const char* name) { return Fd(::memfd_create(name, MFD_CLOEXEC)); }

class QemuArguments : public ::testing::Test {
 protected:
  QemuArguments() {
    images_ = {memfd("kernel"), memfd("initramfs")};
    spec_.id = new_id();
    spec_.images = &images_;
    spec_.memory = memfd("memory");
    spec_.disk.push_back({memfd("rootfs"), DiskLayer::Format::raw, true});
    spec_.disk.push_back({memfd("base"), DiskLayer::Format::qcow2, true});
    spec_.disk.push_back({memfd("own"), DiskLayer::Format::qcow2, false});
    machine_.build = "abc";
    machine_.version = "7.2.22";
    machine_.tsc_khz = 2'100'000;
  }
  Result<QemuLaunch> launch() { return qemu_launch(spec_, machine_, memfd("control"), memfd("tap")); }
  static std::vector<std::string> values(const QemuLaunch& launch, std::string_view option) {
    std::vector<std::string> found;
    for (std::size_t i = 0; i + 1 < launch.argv.size(); ++i)
      if (launch.argv[i] == option) found.push_back(launch.argv[i + 1]);
    return found;
  }
  // The name of the memfd behind "…/fd/N" or "fd=N" or "/dev/fdset/S" of an argument.
  static std::string behind(const QemuLaunch& launch, int number) {
    char target[256] = {};
    const auto& fd = launch.fds.at(static_cast<std::size_t>(number - kFirstPassedFd));
    EXPECT_GT(::readlink(fmt::format("/proc/self/fd/{}", fd.get()).c_str(), target, sizeof target - 1), 0);
    std::string name(target);
    return name.substr(name.find(':') + 1, name.find(' ') - name.find(':') - 1);
  }
  static int number_after(const std::string& text, std::string_view key) {
    const auto at = text.find(key);
    EXPECT_NE(at, std::string::npos) << text;
    return std::atoi(text.c_str() + at + key.size());
  }

  GuestImages images_;
  VmSpec spec_;
  QemuMachine machine_;
};

TEST_F(QemuArguments, NameEveryFileByDescriptorAndNoPathOfTheHost) {
  auto made = launch();
  ASSERT_TRUE(made.has_value()) << made.error().message;
  EXPECT_EQ(behind(*made, number_after(values(*made, "-kernel").at(0), "/proc/self/fd/")), "kernel");
  EXPECT_EQ(behind(*made, number_after(values(*made, "-initrd").at(0), "/proc/self/fd/")), "initramfs");
  const auto objects = values(*made, "-object");
  const auto memory = std::find_if(objects.begin(), objects.end(), [](const auto& o) { return o.starts_with("memory-backend-file"); });
  ASSERT_NE(memory, objects.end());
  EXPECT_EQ(behind(*made, number_after(*memory, "mem-path=/proc/self/fd/")), "memory");
  EXPECT_NE(memory->find("share=off"), std::string::npos);
  EXPECT_EQ(behind(*made, number_after(values(*made, "-netdev").at(0), "fd=")), "tap");
  const auto chardevs = values(*made, "-chardev");
  EXPECT_EQ(behind(*made, number_after(chardevs.back(), "fd=")), "control");
  for (const std::string& argument : made->argv) {
    const auto slash = argument.find('/');
    if (slash == std::string::npos) continue;
    EXPECT_TRUE(argument.find("/proc/self/fd/") != std::string::npos || argument.find("/dev/fdset/") != std::string::npos) << argument;
  }
}

TEST_F(QemuArguments, ChainTheDisksFromBottomToTop) {
  auto made = launch();
  ASSERT_TRUE(made.has_value());
  const auto nodes = values(*made, "-blockdev");
  const auto sets = values(*made, "-add-fd");
  ASSERT_EQ(nodes.size(), 6u);
  ASSERT_EQ(sets.size(), 3u);
  const char* names[] = {"rootfs", "base", "own"};
  for (std::size_t i = 0; i < 3; ++i) {
    const auto file = parse_json_object(nodes[2 * i]).value();
    const auto format = parse_json_object(nodes[2 * i + 1]).value();
    EXPECT_EQ(file.at("locking").get_string(), "off");
    EXPECT_EQ(file.at("filename").get_string(), fmt::format("/dev/fdset/{}", i + 1));
    EXPECT_EQ(behind(*made, number_after(sets[i], "fd=")), names[i]);
    EXPECT_EQ(format.at("read-only").get_bool(), i < 2);
    if (i > 0) {
      EXPECT_EQ(format.at("backing").get_string(), fmt::format("disk{}", i - 1));
    }
  }
  EXPECT_EQ(parse_json_object(nodes[1]).value().at("driver").get_string(), "raw");
}

TEST_F(QemuArguments, GiveEveryVmItsOwnFileDescriptionsWithTheRightMode) {
  auto made = launch();
  ASSERT_TRUE(made.has_value());
  for (const Fd& fd : made->fds) {
    const int mode = ::fcntl(fd.get(), F_GETFL) & O_ACCMODE;
    struct stat st {};
    ::fstat(fd.get(), &st);
    struct stat rootfs {};
    ::fstat(spec_.disk[0].file.get(), &rootfs);
    if (st.st_ino != rootfs.st_ino) continue;
    EXPECT_EQ(mode, O_RDONLY);
    // A change of flags there must not show here.
    ASSERT_EQ(::fcntl(fd.get(), F_SETFL, O_NONBLOCK), 0);
    EXPECT_EQ(::fcntl(spec_.disk[0].file.get(), F_GETFL) & O_NONBLOCK, 0);
  }
}

TEST_F(QemuArguments, ALoadWaitsAndABootDoesNot) {
  EXPECT_EQ(values(*launch(), "-incoming"), std::vector<std::string>{"defer"});
  spec_.memory_shared = true;
  spec_.begin = VmSpec::Begin::boot;
  EXPECT_TRUE(values(*launch(), "-incoming").empty());
}

TEST_F(QemuArguments, TellTheClockUnderTcgOnly) {
  auto tcg = launch();
  EXPECT_NE(values(*tcg, "-append").at(0).find("tsc_early_khz=2100000 lpj=8400000"), std::string::npos);
  machine_.kvm = true;
  machine_.cpu = "Haswell-v4";
  auto kvm = launch();
  EXPECT_EQ(values(*kvm, "-append").at(0).find("tsc"), std::string::npos);
  EXPECT_EQ(values(*kvm, "-accel").at(0), "kvm");
  EXPECT_EQ(values(*kvm, "-cpu").at(0), "Haswell-v4");
}

TEST_F(QemuArguments, RefuseASpecificationThatBreaksItsRules) {
  spec_.id = "../x";
  EXPECT_EQ(launch().error().code, "invalid_vm_spec");
  spec_.id = new_id();
  spec_.disk[1].read_only = false;
  EXPECT_EQ(launch().error().code, "invalid_vm_spec");
  spec_.disk[1].read_only = true;
  spec_.disk.resize(0);
  EXPECT_EQ(launch().error().code, "invalid_vm_spec");
}

TEST_F(QemuArguments, TheKeyOfAStateStandsForWhatItDependsOn) {
  const std::string key = qemu_state_key(machine_);
  machine_.tsc_khz += 300;
  machine_.translation_cache_mib = 64;
  EXPECT_EQ(qemu_state_key(machine_), key);
  machine_.tsc_khz += 5'000;
  EXPECT_NE(qemu_state_key(machine_), key);
  machine_.tsc_khz -= 5'300;
  machine_.build = "def";
  EXPECT_NE(qemu_state_key(machine_), key);
}

TEST(KvmCpu, IsANamedModelThatTheHostHas) {
  EXPECT_EQ(kvm_cpu_model("vendor_id : GenuineIntel\nflags : fpu avx2 fma avx512f clwb pku\n"), "Skylake-Server-v3");
  EXPECT_EQ(kvm_cpu_model("vendor_id : GenuineIntel\nflags : fpu avx2 fma pku\n"), "Haswell-v4");
  EXPECT_EQ(kvm_cpu_model("vendor_id : AuthenticAMD\nflags : fpu avx2 fma pku\n"), "EPYC-v3");
  EXPECT_EQ(kvm_cpu_model("vendor_id : GenuineIntel\nflags : fpu\n"), "Nehalem-v2");
}

TEST(Tsc, IsMeasuredTheSameTwice) {
  const double first = measure_tsc_khz(), second = measure_tsc_khz();
  ASSERT_GT(first, 100'000);
  EXPECT_NEAR(first / second, 1.0, 0.001);
}

}  // namespace
}  // namespace space::vmm
