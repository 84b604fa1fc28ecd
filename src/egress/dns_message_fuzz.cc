#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "egress/dns_message.h"

// What a guest asks and what a resolver answers. An answer of ours must be one that our own reader takes.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace space::egress;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (const auto question = parse_dns_question(bytes)) {
    const std::vector<Address> addresses(2, Address::v4({198, 18, 0, 1}));
    const std::string answer = dns_answer(*question, question->code, addresses, 30, true);
    if (answer.size() > 1232) std::abort();
    if (question->code == DnsCode::no_error && !question->name.empty() && question->type == 1 &&
        !parse_dns_reply(answer, question->id, question->name, DnsType::a))
      std::abort();
  }
  if (size > 2) (void)parse_dns_reply(bytes, static_cast<std::uint16_t>(data[0] << 8 | data[1]), "a.example.com", DnsType::a);
  return 0;
}
