// Network namespaces (network_namespaces(7)). A thread that enters one never comes back: it ends, so that no later work of the
// process can happen in the wrong place by mistake.
#pragma once

#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <thread>

#include "base/fd.h"
#include "base/result.h"

namespace space::net {

// Enters the namespace with the calling thread for good.
Result<> enter_namespace(const Fd& net_namespace);
// Moves the calling thread for good into a new, empty namespace (a downed `lo`) and returns it.
Result<Fd> enter_new_namespace();

// A name for a namespace that outlives every process (a bind mount of nsfs, as `ip netns` makes). `path` is a file that is made.
Result<> pin_namespace(const Fd& net_namespace, const std::filesystem::path& path);
Result<Fd> open_pinned(const std::filesystem::path& path);    // `not_found` when there is no namespace at that path
Result<> unpin_namespace(const std::filesystem::path& path);  // idempotent; the namespace ends when nothing else holds it

// Runs `work` (returning a Result) on a thread of its own and waits for it; about 50 µs.
template <class F>
auto on_own_thread(F work) -> decltype(work()) {
  std::optional<decltype(work())> result;
  try {
    std::thread([&] { result.emplace(work()); }).join();
  } catch (const std::system_error& e) {
    return fail(ErrorKind::resource_exhausted, "no_thread", std::string("start a thread: ") + e.what());
  }
  return std::move(*result);
}

template <class F>
auto in_namespace(const Fd& net_namespace, F work) -> decltype(work()) {
  return on_own_thread([&]() -> decltype(work()) {
    TRY_VOID(enter_namespace(net_namespace));
    return work();
  });
}

}  // namespace space::net
