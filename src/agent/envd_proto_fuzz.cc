// What was read must be the same when it is written and read again.
#include <cstdlib>

#include "agent/envd_proto.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace space;
  using namespace space::agent;
  constexpr const char* kPaths[] = {"/process.Process/Start",         "/process.Process/SendInput",     "/process.Process/SendSignal",
                                    "/process.Process/StreamInput",   "/process.Process/Update",        "/filesystem.Filesystem/Move",
                                    "/filesystem.Filesystem/ListDir", "/filesystem.Filesystem/WatchDir"};
  if (size < 1) return 0;
  const proto::Message* message = proto::request_of(kPaths[data[0] % std::size(kPaths)]);
  const auto once = proto::decode(*message, {reinterpret_cast<const char*>(data) + 1, size - 1});
  if (!once) return 0;
  const auto twice = proto::decode(*message, proto::encode(*message, *once));
  if (!twice || *twice != *once) std::abort();
  return 0;
}
