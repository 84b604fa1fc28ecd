// Volumes that this sandbox has mounted: the guest's kernel speaks FUSE, what it asks goes over the wire to the volume, and what is
// under way is kept until its answer has come. So a mount waits while there is no wire (the volume sleeps, the sandbox itself was
// put away, the host's process was replaced) and goes on with the next one: programs see a slow filesystem, not a broken one.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "agent/volume_wire.h"
#include "base/fd.h"

namespace space::agent {

class VolumeMount : public std::enable_shared_from_this<VolumeMount> {
 public:
  // Mounts on `path`, which is made when it is not there. Blocks. unsupported/volume_unsupported without FUSE in the kernel.
  static Result<std::shared_ptr<VolumeMount>> make(const std::string& path);
  VolumeMount(const VolumeMount&) = delete;
  VolumeMount& operator=(const VolumeMount&) = delete;

  const std::string& id() const { return id_; }  // of this mounting: its requests' numbers mean nothing to another
  bool over() const { return over_; }            // somebody has unmounted it
  // From here on by this wire, beginning with what is under way. Does not block.
  void use(std::shared_ptr<VolumeWire> wire);
  // What waits for the volume fails with ENOTCONN, and the mount goes from the tree of files.
  void end();

 private:
  VolumeMount(std::string path, Fd device);
  void carry_requests();  // a thread for the mount
  void begin(const std::shared_ptr<VolumeWire>& wire);
  void carry_answers(const std::shared_ptr<VolumeWire>& wire);  // one for each wire
  bool answer_here(std::span<const std::byte> request);
  void drop(const std::shared_ptr<VolumeWire>& wire);

  const std::string path_, id_;
  const Fd device_;
  std::atomic<bool> over_ = false;
  std::mutex sending_;  // of requests; taken before `state_`
  std::shared_ptr<VolumeWire> wire_;
  std::mutex state_;
  std::map<std::uint64_t, std::vector<std::byte>> waiting_;  // by number, which grows: the order in which they came
};

// All of a sandbox. For the loop; what blocks is done on the pool by the caller.
class VolumeMounts {
 public:
  // Exactly these from now on. Blocks.
  Result<> set(const std::vector<std::string>& paths);
  std::shared_ptr<VolumeMount> find(const std::string& path);

 private:
  std::mutex lock_;
  std::map<std::string, std::shared_ptr<VolumeMount>> mounts_;  // in the order of their paths: a folder before what is in it
};

// Where a volume may be mounted: absolute, clean, and not where the system lives.
Result<std::string> mount_path(std::string_view text);

}  // namespace space::agent
