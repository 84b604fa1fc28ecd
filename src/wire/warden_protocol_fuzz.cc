// Both readers of the warden's packets: whatever comes is refused or is well-formed.
#include <cstdlib>

#include "wire/warden_protocol.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace space::wire;
  std::string bytes(reinterpret_cast<const char*>(data), size);
  // Short inputs are filled up, so that mutations reach the fields and not only the check of the size.
  if (size < sizeof(WardenRequest)) bytes.resize(sizeof(WardenRequest));
  if (auto request = parse_warden_request(bytes))
    if (split_argv(*request).size() != request->argv_count) std::abort();
  bytes.resize(sizeof(WardenReply));
  if (auto reply = parse_warden_reply(bytes); reply && reply->failed != 0) (void)error_of(*reply);
  return 0;
}
