// Volumes in sandboxes. A volume is a sandbox of its own, whose agent serves its folder (src/agent/fuse_server.h); a sandbox that has
// it mounted speaks FUSE to it, and node carries the bytes between the two agents without reading any.
//
// What is mounted where is part of a sandbox's record, so a node that was killed takes it up again. A mount in a guest waits while
// there is no link, and goes on with the next one; so nothing else happens at a pause, a suspend, a wake, a fork or a restore than
// that a link ends, or a new one is made. A volume that is wanted and rests is asked for with the event `volume_wanted`.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/async.h"
#include "node/events.h"
#include "node/sandboxes.h"

namespace space::node {

inline constexpr std::size_t kMostMounts = 16;  // of a sandbox

// For node's loop. Coroutines of it hold it.
class Mounts : public std::enable_shared_from_this<Mounts> {
 public:
  Mounts(asio::any_io_executor executor, Sandboxes& sandboxes, Events& events);
  // The sandbox has exactly these from now on, durably; when it runs, each works when this returns. On an error the record says so all
  // the same, and it is tried on. volume_not_found, volume_unsupported (its kernel has no FUSE), volume_not_ready, invalid_path.
  Task<> set(std::shared_ptr<Sandbox> sandbox, std::vector<VolumeMount> mounts);
  asio::awaitable<void> keep();  // until stop(): makes links that are missing
  void stop();

 private:
  using Clock = std::chrono::steady_clock;
  struct Link {
    std::string volume, machine;        // the volume's id; the client's VM
    std::function<void()> cut = [] {};  // once bytes flow
    std::optional<Error> failure;       // why it could not be made; it is tried again at `again`
    Clock::time_point again{};
    bool busy = true;  // being made, or carrying
    bool works = false;
  };
  struct Told {
    std::string machine;
    std::vector<std::string> paths;
    bool operator==(const Told&) const = default;
  };

  void look_at(const std::shared_ptr<Sandbox>& sandbox);
  void make_link(const std::shared_ptr<Sandbox>& sandbox, const VolumeMount& mount, const std::shared_ptr<Sandbox>& volume,
                 const std::string& key);
  Told wanted(const Sandbox& sandbox) const;
  Task<> tell(std::shared_ptr<Sandbox> sandbox, Told now);  // which paths its guest is to have mounted
  Task<> carry(std::shared_ptr<Sandbox> sandbox, VolumeMount mount, std::shared_ptr<Sandbox> volume, std::string key);
  std::shared_ptr<Sandbox> volume_of(const Sandbox& sandbox, const std::string& volume) const;
  void ask_for(const std::string& volume);
  std::optional<Error> first_failure(const Sandbox& sandbox) const;
  bool all_work(const Sandbox& sandbox) const;
  static std::string key_of(const Sandbox& sandbox, const std::string& path) { return sandbox.record.id + ":" + path; }

  asio::any_io_executor executor_;
  Sandboxes& sandboxes_;
  Events& events_;
  Signal changed_;
  bool stopping_ = false;
  std::map<std::string, Link> links_;
  std::map<std::string, Told> told_;                // by sandbox
  std::map<std::string, Clock::time_point> asked_;  // by volume
};

}  // namespace space::node
