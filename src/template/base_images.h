// Bases: a template booted once, driven to readiness, warmed and saved; every create maps it copy-on-write.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/async.h"
#include "template/release.h"
#include "vmm/driver.h"

namespace space::tmpl {

// A base ready to load from: the sealed memory image, the device state and the disk below every sandbox's own overlay.
struct Base {
  std::string key;  // digest of (template, size, kernel, initramfs, driver's state_key)
  Release release;
  vmm::Size size;
  vmm::GuestImages images;
  Fd memory;  // sealed memfd; duplicate it for each VM
  vmm::DeviceState state;
  std::vector<vmm::DiskLayer> disk;  // rootfs and the base's overlay, read-only; duplicate for each VM
  Fd empty_overlay;                  // an empty qcow2 of the right size, to be copied for each sandbox
  std::string state_key;             // the driver's, of what wrote its state
  std::string content;               // digest of what was made: one that is made again under the same key is another
};

// What there is of one size of a release.
struct BaseStatus {
  enum class State { none, making, ready, failed };
  vmm::Size size;
  State state = State::none;
  std::string step;  // of a making, in a word, and how many steps are over
  unsigned done = 0, of = 0;
  std::optional<Error> error;  // of the last try that failed
};
std::string_view to_string(BaseStatus::State state);

class BaseImages {
 public:
  // `root` holds bases/<key>/; made ones stay there. `driver` and `pool` outlive this. For node's loop.
  BaseImages(std::filesystem::path root, vmm::Driver& driver, BlockingPool& pool);
  ~BaseImages();
  // The base for a release and size: from memory, from disk (verified), or made now (some seconds; concurrent callers share it).
  Task<std::shared_ptr<const Base>> get(const Release& release, const vmm::Size& size);
  // A VM made from `base`, spawned and waiting for load, with `overlay` as its writable disk.
  // `ahead`: VmSpec's.
  Task<std::unique_ptr<vmm::Vm>> spawn(const Base& base, const std::string& vm_id, Fd overlay, bool ahead = false);
  Task<> load(const Base& base, vmm::Vm& vm);
  // The base of that key, from memory or from disk, also one that a create would not get any more (another kernel, agent or VMM
  // since). not_found/base_not_found, corrupt/….
  Task<std::shared_ptr<const Base>> find(std::string key, Release release);
  // The default size first, then whatever other size there is something of.
  Task<std::vector<BaseStatus>> status(Release release);
  // Removes those on disk that no create would get any more and `needed` (keys) does not name; gives their keys. `releases`: all
  // that there are.
  Task<std::vector<std::string>> prune(std::set<std::string> needed, std::vector<Release> releases);
  // Gives up what is being made (unavailable/node_stopping to those who wait) and returns when nothing of it is left.
  asio::awaitable<void> stop();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace space::tmpl
