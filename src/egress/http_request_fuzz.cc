#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "egress/http_request.h"

// A request that passes means exactly one host and one path: reading what goes out again must give the same.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace space;
  static const auto settings = [] {
    constexpr const char* kDocument = R"({"tenant":"t","lineage":"aaaaaaaaaaaaaaaaaaaaaaaa","generation":1,"policy":{"mode":"allowlist",
      "rules":[{"name":"a.example.com","paths":["/public"],"methods":["GET","POST"]},{"name":"b.example.com"}]}})";
    return egress::Settings::parse(parse_json_object(kDocument).value()).value();
  }();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  http::HeadScanner scanner(64 << 10);
  const auto length = scanner.scan(text);
  if (!length || !*length) return 0;
  auto head = http::parse_request_head(text.substr(0, **length), 100);
  if (!head) return 0;
  for (const char* name : {"a.example.com", "b.example.com"}) {
    const egress::Destination to{name, std::nullopt, 443};
    const auto request = egress::check_request(*head, to, true, settings);
    if (!request) continue;
    if (request->host != name || (request->target != "*" && !request->target.starts_with('/')) || request->target.starts_with("//"))
      std::abort();
    http::Head again = *head;
    again.target = request->target;
    again.headers.set("Host", request->host);
    const auto second = egress::check_request(again, to, true, settings);
    if (!second || second->target != request->target || second->path != request->path) std::abort();
  }
  return 0;
}
