#include "net/ruleset.h"

#include <fmt/format.h>
#include <memory>
#include <mutex>
#include <nftables/libnftables.h>

#include "wire/agent_protocol.h"

namespace space::net {

std::string ruleset() {
  using namespace fmt::literals;
  return fmt::format(
      R"(table netdev guest {{
  counter frames {{}}
  chain source {{
    type filter hook ingress device "{tap}" priority 0; policy drop;
    ether saddr != {guest_mac} counter name "frames" drop
    ip saddr {guest} accept
    ip6 saddr {{ {guest6}, {guest_local} }} accept
    arp saddr ether {guest_mac} arp saddr ip {guest} accept
    ip6 saddr :: drop
    ether type 0x8035 drop
    counter name "frames"
  }}
}}
table inet guest {{
  counter protocols {{}}
  counter syn_rate {{}}
  counter connections {{}}
  counter dns_flows {{}}
  chain early {{
    type filter hook prerouting priority -300; policy accept;
    iifname != "{tap}" accept
    tcp flags & (fin | syn | rst | ack) == syn limit rate over {syn_rate}/second burst {syn_burst} packets counter name "syn_rate" reject with tcp reset
    meta l4proto tcp accept
    udp dport 53 accept
    ip daddr {host} icmp type echo-request limit rate 50/second accept
    ip6 daddr {host6} icmpv6 type echo-request limit rate 50/second accept
    icmpv6 type {{ nd-neighbor-solicit, nd-neighbor-advert }} accept
    meta pkttype {{ broadcast, multicast }} drop
    icmp type destination-unreachable drop
    icmpv6 type destination-unreachable drop
    counter name "protocols" reject with icmpx admin-prohibited
  }}
  chain limits {{
    type filter hook prerouting priority -150; policy accept;
    iifname != "{tap}" accept
    ct state invalid drop
    ct state new meta l4proto tcp ct count over {connections} counter name "connections" reject with tcp reset
    ct state new meta l4proto udp ct count over {dns_flows} counter name "dns_flows" reject with icmpx admin-prohibited
  }}
  chain divert {{
    type nat hook prerouting priority -100; policy accept;
    iifname != "{tap}" accept
    meta l4proto {{ tcp, udp }} th dport 53 redirect to :{dns_port}
    meta l4proto tcp redirect to :{tcp_port}
  }}
  chain local_in {{
    type filter hook input priority 0; policy drop;
    iifname "lo" accept
    ct state established,related accept
    tcp dport {{ {tcp_port}, {dns_port} }} accept
    udp dport {dns_port} accept
    icmp type echo-request accept
    icmpv6 type {{ echo-request, nd-neighbor-solicit, nd-neighbor-advert }} accept
  }}
  chain through {{
    type filter hook forward priority 0; policy drop;
  }}
}}
)",
      "tap"_a = kTapName, "guest_mac"_a = kGuestMac, "guest"_a = wire::kGuestAddress, "guest6"_a = wire::kGuestAddress6,
      "guest_local"_a = kGuestLinkLocal, "host"_a = wire::kHostAddress, "host6"_a = wire::kHostAddress6, "syn_rate"_a = kMaxSynPerSecond,
      "syn_burst"_a = 2 * kMaxSynPerSecond, "connections"_a = kMaxConnections, "dns_flows"_a = kMaxDnsFlows, "tcp_port"_a = kEgressTcpPort,
      "dns_port"_a = kEgressDnsPort);
}

Result<> load_ruleset(const std::string& text) {
  static std::mutex one_at_a_time;  // nft_ctx_new counts its users in a plain global
  const std::lock_guard lock(one_at_a_time);
  // A context belongs to the namespace in which it was made: its socket is opened there.
  const std::unique_ptr<nft_ctx, decltype(&nft_ctx_free)> context(nft_ctx_new(NFT_CTX_DEFAULT), nft_ctx_free);
  if (!context || nft_ctx_buffer_output(context.get()) != 0 || nft_ctx_buffer_error(context.get()) != 0)
    return fail(ErrorKind::resource_exhausted, "nft_failed", "libnftables gave no context");
  if (nft_run_cmd_from_buffer(context.get(), text.c_str()) != 0) {
    std::string why = nft_ctx_get_error_buffer(context.get());
    return fail(ErrorKind::unsupported, "nft_failed", fmt::format("the kernel refused the network rules: {}", why.substr(0, 200)),
                "the kernel needs nf_tables with inet, netdev, nat, reject, ct count and limit");
  }
  return {};
}

}  // namespace space::net
