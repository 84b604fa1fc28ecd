#include "vmm/qemu_merge.h"

#include <fcntl.h>
#include <fmt/format.h>

#include "base/file.h"
#include "base/json.h"
#include "base/random.h"

namespace space::vmm {
namespace {

constexpr std::size_t kMostMerged = 64;

class MergeBuilder {
 public:
  Result<QemuLaunch> build(const DiskMerge& merge, Fd control) {
    launch_.argv = {"-nodefaults",
                    "-no-user-config",
                    "-display",
                    "none",
                    "-S",
                    "-M",
                    "none",
                    "-accel",
                    "tcg,thread=single,tb-size=1",
                    "-object",
                    "main-loop,id=loop,thread-pool-max=8",
                    "-sandbox",
                    "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
                    "-mon",
                    "chardev=control,mode=control",
                    "-name",
                    merge.id};
    add("-chardev", fmt::format("socket,id=control,fd={},server=on,wait=off", pass(std::move(control))));
    // Nothing lies below the lowest: what no generation holds is read by nobody and stays a hole.
    TRY_VOID(image(merge.into, kMergeLowest, kMergeLowestFile, json::value(nullptr), false));
    std::string below = kMergeLowest;
    for (std::size_t i = 0; i < merge.generations.size(); ++i) {
      const std::string name = i + 1 == merge.generations.size() ? kMergeHighest : fmt::format("generation{}", i);
      TRY_VOID(image(merge.generations[i], name, fmt::format("file{}", i), json::value(below), true));
      below = name;
    }
    TRY_VOID(image(merge.scratch, kMergeTop, "file-scratch", json::value(below), false));
    return std::move(launch_);
  }

 private:
  void add(std::string_view option, std::string value) { launch_.add(option, std::move(value)); }
  int pass(Fd fd) { return launch_.pass(std::move(fd)); }
  Result<> image(const Fd& from, std::string_view node, std::string_view file, json::value backing, bool read_only) {
    TRY(Fd own, open_file(fmt::format("/proc/self/fd/{}", from.get()), read_only ? O_RDONLY : O_RDWR));
    const int set = ++sets_;
    add("-add-fd", fmt::format("fd={},set={}", pass(std::move(own)), set));
    const json::object protocol{{"driver", "file"},  {"filename", fmt::format("/dev/fdset/{}", set)},
                                {"node-name", file}, {"read-only", read_only},
                                {"locking", "off"},  {"discard", "unmap"}};
    json::object format{{"driver", "qcow2"}, {"node-name", node}, {"file", file}, {"read-only", read_only}, {"backing", std::move(backing)},
                        {"discard", "unmap"}};
    if (!read_only) format["detect-zeroes"] = "on";
    add("-blockdev", json::serialize(protocol));
    add("-blockdev", json::serialize(format));
    return {};
  }

  QemuLaunch launch_;
  int sets_ = 0;
};

}  // namespace

Result<QemuLaunch> qemu_merge_launch(const DiskMerge& merge, Fd control) {
  const auto wrong = [](std::string_view what) { return fail(ErrorKind::invalid_argument, "invalid_merge", std::string(what)); };
  if (!is_id(merge.id)) return wrong("the id of the process is not an id");
  if (merge.generations.empty() || merge.generations.size() > kMostMerged) return wrong("1 to 64 generations are merged at a time");
  if (!merge.into || !merge.scratch) return wrong("an image to write to is missing");
  return MergeBuilder().build(merge, std::move(control));
}

}  // namespace space::vmm
