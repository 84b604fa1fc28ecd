#include "warden/vm_table.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/encoding.h"
#include "base/file.h"
#include "base/log.h"
#include "base/random.h"
#include "warden/jail.h"

namespace space::warden {
namespace fs = std::filesystem;
namespace {

struct [[gnu::packed]] Record {
  char magic[8] = {'s', 'p', 'a', 'c', 'e', 'v', 'm', '1'};
  char boot[36] = {};
  std::uint32_t uid = 0;
  std::int32_t pid = 0;
  std::uint64_t start_time = 0;
};

Record record_of(const Vm& vm) {
  Record record;
  const std::string boot = read_file("/proc/sys/kernel/random/boot_id", 64).value_or("");
  std::memcpy(record.boot, boot.data(), std::min(boot.size(), sizeof record.boot));
  record.uid = vm.uid;
  record.pid = vm.pid;
  record.start_time = vm.start_time;
  return record;
}

}  // namespace

Result<Vm> VmTable::read(const std::string& id) const {
  Vm vm;
  vm.id = id;
  auto bytes = read_file(folder_ / id / "vmm", sizeof(Record));
  if (!bytes && bytes.error().kind == ErrorKind::not_found) return vm;  // a namespace alone
  if (!bytes) return fail(bytes.error());
  Record record;
  const Record mine = record_of(vm);
  if (bytes->size() != sizeof record) return fail(ErrorKind::corrupt, "bad_vm_record", fmt::format("the record of VM {} is damaged", id));
  std::memcpy(&record, bytes->data(), sizeof record);
  if (std::memcmp(record.magic, mine.magic, sizeof record.magic) != 0)
    return fail(ErrorKind::corrupt, "bad_vm_record", fmt::format("the record of VM {} is damaged", id));
  vm.pid = record.pid;
  if (std::memcmp(record.boot, mine.boot, sizeof record.boot) != 0) return vm;  // its uid belongs to nothing any more
  vm.uid = record.uid;
  vm.start_time = record.start_time;
  if (auto process = vm.pid > 0 ? open_process(vm.pid, vm.start_time) : Result<Fd>(Fd())) vm.pidfd = std::move(*process);
  return vm;
}

Result<> VmTable::load() {
  TRY(const auto names, list_directory(folder_));
  for (const std::string& name : names) {
    if (!is_id(name)) continue;
    auto vm = read(name);
    if (!vm) {
      // Listed as ended, so that node has it destroyed; its process, if any, is not ours to guess.
      log::error("warden.record_unreadable", {{"vm", name}, {"error", vm.error()}});
      vm = Vm{};
      vm->id = name;
    }
    vms_.emplace(name, std::move(*vm));
  }
  return {};
}

Vm* VmTable::find(const std::string& id) {
  const auto it = vms_.find(id);
  return it == vms_.end() ? nullptr : &it->second;
}

Result<Vm*> VmTable::need(const std::string& id) {
  if (Vm* vm = find(id)) return vm;
  return fail(ErrorKind::not_found, "vm_unknown", fmt::format("the warden has no VM {}", id));
}

Result<Vm*> VmTable::make(const std::string& id) {
  if (Vm* vm = find(id)) return vm;
  const fs::path folder = folder_ / id;
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return fail_errno(errno, fmt::format("mkdir {}", folder.string()));
  Vm& vm = vms_[id];
  vm.id = id;
  return &vm;
}

Result<> VmTable::record(const Vm& vm) const {
  const Record record = record_of(vm);
  const fs::path path = folder_ / vm.id / "vmm", aside = folder_ / vm.id / "vmm.new";
  TRY(Fd fd, open_file(aside, O_WRONLY | O_CREAT | O_TRUNC, 0600));
  TRY_VOID(write_all(fd, as_text(std::as_bytes(std::span(&record, 1)))));
  if (::rename(aside.c_str(), path.c_str()) != 0) return fail_errno(errno, fmt::format("rename to {}", path.string()));
  return {};
}

Result<> VmTable::erase(const std::string& id) {
  TRY_VOID(remove_tree(folder_ / id));
  vms_.erase(id);
  return {};
}

}  // namespace space::warden
