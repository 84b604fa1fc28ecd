// A volume's folder as a FUSE filesystem (Linux, include/uapi/linux/fuse.h): requests of the kernels of sandboxes that have it mounted,
// as they are, in; answers out. It keeps next to nothing between requests, so that a mount outlives a lost connection, a pause, a
// suspend and a fork of its sandbox: a node's number *is* its file handle (fuse_nodes.h), and an open file has none of its own. What is
// kept is in FuseClient.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "agent/fuse_nodes.h"
#include "base/fd.h"
#include "base/result.h"

namespace space::agent {

inline constexpr std::uint32_t kFuseMinor = 31;                // of protocol 7 that is spoken, whatever the two ends know
inline constexpr std::size_t kFuseData = 128 << 10;            // of one read or write
inline constexpr std::size_t kFuseMessage = kFuseData + 8192;  // the longest request or answer

// Of one mount in one sandbox.
struct FuseClient {
  std::mutex lock;
  // Answers to what cannot be done twice, by the request's number: a request whose answer was lost comes again.
  std::map<std::uint64_t, std::vector<std::byte>> answers;
  std::deque<std::uint64_t> order;
  std::set<std::uint64_t> under_way;  // of these: who comes again meanwhile waits for the answer
  std::condition_variable answered;
  // Files that it removed and may have open still: they stay until it forgets them.
  std::map<std::uint64_t, Fd> removed;
};

class FuseServer {
 public:
  // As FuseNodes::open.
  static Result<std::unique_ptr<FuseServer>> open(const std::string& folder, const std::string& key);

  // From any thread. `request` is one whole message, from whoever. Empty: nothing is answered.
  std::vector<std::byte> serve(FuseClient& client, std::span<const std::byte> request) const;
  // The state of the mount of that name, made at its first connection; the ones unused longest go.
  std::shared_ptr<FuseClient> client(const std::string& name);

 private:
  friend class FuseCall;
  explicit FuseServer(FuseNodes nodes) : nodes_(std::move(nodes)) {}
  const FuseNodes nodes_;
  std::mutex lock_;
  std::map<std::string, std::shared_ptr<FuseClient>, std::less<>> clients_;
  std::deque<std::string> used_;  // names, the latest last
};

}  // namespace space::agent
