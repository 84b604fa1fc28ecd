#include "egress/dns_message.h"

#include <algorithm>
#include <fmt/format.h>
#include <ldns/ldns.h>
#include <memory>

#include "egress/name.h"

namespace space::egress {
namespace {

struct Free {
  void operator()(ldns_pkt* p) const { ldns_pkt_free(p); }
  void operator()(ldns_rr* r) const { ldns_rr_free(r); }
  void operator()(ldns_rdf* r) const { ldns_rdf_deep_free(r); }
  void operator()(std::uint8_t* p) const { LDNS_FREE(p); }
};
template <class T>
using Owned = std::unique_ptr<T, Free>;

constexpr std::size_t kHeader = 12;
constexpr std::size_t kMostAliases = 8, kMostAddresses = 16;
constexpr std::uint16_t kOurUdpSize = 1232;  // DNS flag day 2020

Owned<ldns_pkt> parse(std::string_view message) {
  ldns_pkt* packet = nullptr;
  if (ldns_wire2pkt(&packet, reinterpret_cast<const std::uint8_t*>(message.data()), message.size()) != LDNS_STATUS_OK) return nullptr;
  return Owned<ldns_pkt>(packet);
}

// The name without escapes, canonical; "" when a label holds what host names do not have (ldns would write it as an escape,
// and a dot inside a label must not become two labels).
std::string host_name(const ldns_rdf* owner) {
  if (!owner || ldns_rdf_get_type(owner) != LDNS_RDF_TYPE_DNAME) return {};
  const auto* data = ldns_rdf_data(owner);
  const std::size_t size = ldns_rdf_size(owner);
  std::string text;
  for (std::size_t at = 0; at < size;) {
    const std::size_t length = data[at++];
    if (length == 0) break;
    if (length > 63 || at + length > size) return {};
    if (!text.empty()) text.push_back('.');
    for (std::size_t i = 0; i < length; ++i) {
      const char c = static_cast<char>(data[at + i]);
      if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_')) return {};
      text.push_back(c);
    }
    at += length;
  }
  auto name = canonical_name(text);
  return name ? *name : std::string();
}

Owned<ldns_rdf> wire_name(std::string_view name) { return Owned<ldns_rdf>(ldns_dname_new_frm_str(std::string(name).c_str())); }

std::optional<Address> address_of(const ldns_rr* record) {
  const ldns_rdf* data = ldns_rr_rdf(record, 0);
  if (!data) return std::nullopt;
  if (ldns_rr_get_type(record) == LDNS_RR_TYPE_A && ldns_rdf_size(data) == 4) {
    std::array<std::uint8_t, 4> bytes;
    std::copy_n(ldns_rdf_data(data), 4, bytes.begin());
    return Address::v4(bytes);
  }
  if (ldns_rr_get_type(record) == LDNS_RR_TYPE_AAAA && ldns_rdf_size(data) == 16) {
    std::array<std::uint8_t, 16> bytes;
    std::copy_n(ldns_rdf_data(data), 16, bytes.begin());
    return Address::v6(bytes);
  }
  return std::nullopt;
}

std::string to_wire(const ldns_pkt* packet) {
  std::uint8_t* bytes = nullptr;
  std::size_t size = 0;
  if (ldns_pkt2wire(&bytes, packet, &size) != LDNS_STATUS_OK) return {};
  const Owned<std::uint8_t> owner(bytes);
  return std::string(reinterpret_cast<const char*>(bytes), size);
}

tl::unexpected<Error> bad_reply(std::string_view why) {
  return fail(ErrorKind::unavailable, "bad_dns_answer", fmt::format("the resolver's answer {}", why));
}

}  // namespace

std::optional<DnsQuestion> parse_dns_question(std::string_view message) {
  if (message.size() < kHeader || message.size() > kLongestDnsQuery) return std::nullopt;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(message[i]); };
  const auto word = [&](std::size_t i) { return static_cast<std::uint16_t>(byte(i) << 8 | byte(i + 1)); };
  if (byte(2) & 0x80) return std::nullopt;  // an answer: never reply, or two gateways would talk for ever
  DnsQuestion q;
  q.id = word(0);
  q.recursion_desired = byte(2) & 1;
  const auto answer_with = [&](DnsCode code) {
    q.code = code;
    return q;
  };
  if ((byte(2) >> 3 & 0x0f) != 0) return answer_with(DnsCode::not_implemented);
  if (word(4) != 1 || word(6) != 0 || word(8) != 0 || word(10) > 1) return answer_with(DnsCode::format_error);
  const auto packet = parse(message);
  if (!packet) return answer_with(DnsCode::format_error);
  const ldns_rr_list* questions = ldns_pkt_question(packet.get());
  if (ldns_rr_list_rr_count(questions) != 1 || ldns_rr_list_rr_count(ldns_pkt_additional(packet.get())) != 0)
    return answer_with(DnsCode::format_error);
  const ldns_rr* question = ldns_rr_list_rr(questions, 0);
  const ldns_rdf* owner = ldns_rr_owner(question);
  q.raw_name.assign(reinterpret_cast<const char*>(ldns_rdf_data(owner)), ldns_rdf_size(owner));
  q.type = static_cast<std::uint16_t>(ldns_rr_get_type(question));
  if (ldns_pkt_edns(packet.get())) {
    q.edns = true;
    q.longest_answer = std::clamp<std::size_t>(ldns_pkt_edns_udp_size(packet.get()), 512, kOurUdpSize);
  }
  if (ldns_rr_get_class(question) != LDNS_RR_CLASS_IN) return answer_with(DnsCode::refused);
  q.name = host_name(owner);
  return q;
}

std::string dns_answer(const DnsQuestion& question, DnsCode code, const std::vector<Address>& addresses, std::uint32_t ttl_s,
                       bool over_udp) {
  const Owned<ldns_pkt> packet(ldns_pkt_new());
  if (!packet) return {};
  ldns_pkt_set_id(packet.get(), question.id);
  ldns_pkt_set_qr(packet.get(), true);
  ldns_pkt_set_rd(packet.get(), question.recursion_desired);
  ldns_pkt_set_ra(packet.get(), true);
  ldns_pkt_set_rcode(packet.get(), static_cast<std::uint8_t>(code));
  auto owner = [&] { return ldns_rdf_new_frm_data(LDNS_RDF_TYPE_DNAME, question.raw_name.size(), question.raw_name.data()); };
  if (!question.raw_name.empty()) {
    ldns_rr* asked = ldns_rr_new();
    ldns_rr_set_question(asked, true);
    ldns_rr_set_owner(asked, owner());
    ldns_rr_set_type(asked, static_cast<ldns_rr_type>(question.type));
    ldns_rr_set_class(asked, LDNS_RR_CLASS_IN);
    ldns_pkt_push_rr(packet.get(), LDNS_SECTION_QUESTION, asked);
  }
  for (const Address& address : addresses) {
    const bool v4 = address.is_v4();
    ldns_rr* record = ldns_rr_new();
    ldns_rr_set_owner(record, owner());
    ldns_rr_set_type(record, v4 ? LDNS_RR_TYPE_A : LDNS_RR_TYPE_AAAA);
    ldns_rr_set_class(record, LDNS_RR_CLASS_IN);
    ldns_rr_set_ttl(record, ttl_s);
    ldns_rr_push_rdf(record,
                     ldns_rdf_new_frm_data(v4 ? LDNS_RDF_TYPE_A : LDNS_RDF_TYPE_AAAA, v4 ? 4 : 16, address.bytes().data() + (v4 ? 12 : 0)));
    ldns_pkt_push_rr(packet.get(), LDNS_SECTION_ANSWER, record);
  }
  if (question.edns) ldns_pkt_set_edns_udp_size(packet.get(), kOurUdpSize);
  std::string wire = to_wire(packet.get());
  if (!over_udp || wire.size() <= question.longest_answer || addresses.empty()) return wire;
  wire = dns_answer(question, code, {}, ttl_s, false);
  if (wire.size() > 2) wire[2] = static_cast<char>(wire[2] | 2);  // TC
  return wire;
}

Result<std::string> dns_query(std::uint16_t id, std::string_view name, DnsType type) {
  const Owned<ldns_pkt> packet(ldns_pkt_new());
  auto owner = wire_name(name);
  if (!packet || !owner) return fail(ErrorKind::invalid_argument, "invalid_name", fmt::format("'{}' cannot be asked for", name));
  ldns_rr* asked = ldns_rr_new();
  ldns_rr_set_question(asked, true);
  ldns_rr_set_owner(asked, owner.release());
  ldns_rr_set_type(asked, static_cast<ldns_rr_type>(type));
  ldns_rr_set_class(asked, LDNS_RR_CLASS_IN);
  ldns_pkt_push_rr(packet.get(), LDNS_SECTION_QUESTION, asked);
  ldns_pkt_set_id(packet.get(), id);
  ldns_pkt_set_rd(packet.get(), true);
  ldns_pkt_set_edns_udp_size(packet.get(), kOurUdpSize);
  std::string wire = to_wire(packet.get());
  if (wire.empty()) return fail(ErrorKind::internal, "dns_failed", "ldns made no message");
  return wire;
}

Result<DnsReply> parse_dns_reply(std::string_view message, std::uint16_t id, std::string_view name, DnsType type) {
  if (message.size() < kHeader) return bad_reply("is too short");
  const auto packet = parse(message);
  if (!packet) return bad_reply("is malformed");
  const ldns_rr_list* questions = ldns_pkt_question(packet.get());
  if (!ldns_pkt_qr(packet.get()) || ldns_pkt_id(packet.get()) != id || ldns_rr_list_rr_count(questions) != 1)
    return bad_reply("belongs to another question");
  const ldns_rr* question = ldns_rr_list_rr(questions, 0);
  if (ldns_rr_get_type(question) != static_cast<ldns_rr_type>(type) || ldns_rr_get_class(question) != LDNS_RR_CLASS_IN ||
      host_name(ldns_rr_owner(question)) != name)
    return bad_reply("belongs to another question");
  DnsReply reply;
  reply.code = static_cast<DnsCode>(ldns_pkt_get_rcode(packet.get()));
  reply.truncated = ldns_pkt_tc(packet.get());
  reply.ttl_s = 3600;
  const ldns_rr_list* answers = ldns_pkt_answer(packet.get());
  const std::size_t count = std::min<std::size_t>(ldns_rr_list_rr_count(answers), 256);
  std::string at(name);
  for (std::size_t hops = 0;; ++hops) {
    if (hops > kMostAliases)
      return fail(ErrorKind::unavailable, "dns_chain_too_long", "the name is an alias of an alias, more than 8 times over");
    std::string next;
    for (std::size_t i = 0; i < count; ++i) {
      const ldns_rr* record = ldns_rr_list_rr(answers, i);
      if (ldns_rr_get_class(record) != LDNS_RR_CLASS_IN || host_name(ldns_rr_owner(record)) != at) continue;
      if (ldns_rr_get_type(record) == static_cast<ldns_rr_type>(type)) {
        if (const auto address = address_of(record); address && reply.addresses.size() < kMostAddresses) {
          reply.addresses.push_back(*address);
          reply.ttl_s = std::min(reply.ttl_s, ldns_rr_ttl(record));
        }
      } else if (ldns_rr_get_type(record) == LDNS_RR_TYPE_CNAME && next.empty()) {
        next = host_name(ldns_rr_rdf(record, 0));
        if (next.empty()) return bad_reply("has an alias to something that is no host name");
        reply.ttl_s = std::min(reply.ttl_s, ldns_rr_ttl(record));
      }
    }
    if (!reply.addresses.empty()) {
      reply.alias.clear();
      return reply;
    }
    if (next.empty()) {
      if (hops > 0) reply.alias = at;
      return reply;
    }
    at = std::move(next);
  }
}

}  // namespace space::egress
