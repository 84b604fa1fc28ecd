// Figures of single parts, for bench/lib/micro.py: one number a line, a warm-up before.
//
//   space-bench policy SAMPLES    ns for one decision by a policy of 10,000 names
//   space-bench netns SAMPLES     µs for a sandbox's namespace, without the pool
//   space-bench rules             the nft rules of such a namespace
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "egress/policy.h"
#include "net/ruleset.h"
#include "net/sandbox_net.h"

namespace {

using Clock = std::chrono::steady_clock;
using namespace space;

constexpr int kNames = 10'000, kBatch = 1'000;

// 10,000 names, a tenth of them wildcards, some with paths and some denied, as a long list of a company would have it.
json::object policy_document() {
  json::array rules;
  for (int i = 0; i < kNames; ++i) {
    json::object rule{{"name", (i % 10 == 0 ? "*.host" : "host") + std::to_string(i) + ".services.example.com"}};
    if (i % 7 == 0) rule["paths"] = json::array{"/v1", "/v2"};
    if (i % 11 == 0) rule["action"] = "deny";
    rules.push_back(std::move(rule));
  }
  return {{"mode", "allowlist"}, {"rules", std::move(rules)}};
}

int policy(int samples) {
  auto parsed = egress::Policy::parse(policy_document());
  if (!parsed) return std::fprintf(stderr, "%s\n", parsed.error().message.c_str()), 1;
  const egress::Policy& rules = **parsed;
  // Names that are there, names below wildcards, and names that are not there, in turn.
  std::vector<egress::Destination> asked;
  for (int i = 0; i < kBatch; ++i) {
    egress::Destination to;
    const int n = i * 7919 % kNames;
    to.name = i % 3 == 2 ? "nobody" + std::to_string(n) + ".example.org" : (n % 10 == 0 ? "a.host" : "host") + std::to_string(n) + ".services.example.com";
    to.port = 443;
    asked.push_back(std::move(to));
  }
  std::size_t allowed = 0;
  for (int sample = -10; sample < samples; ++sample) {
    const auto from = Clock::now();
    for (const egress::Destination& to : asked) allowed += rules.request(to, "GET", "/v1/things").allowed ? 1 : 0;
    const double ns = std::chrono::duration<double, std::nano>(Clock::now() - from).count() / kBatch;
    if (sample >= 0) std::printf("%.1f\n", ns);
  }
  if (allowed == 0) return 1;
  return 0;
}

int netns(int samples) {
  for (int sample = -3; sample < samples; ++sample) {
    const auto from = Clock::now();
    const auto made = net::make_sandbox_net();
    const double us = std::chrono::duration<double, std::micro>(Clock::now() - from).count();
    if (!made) return std::fprintf(stderr, "%s\n", made.error().message.c_str()), 1;
    if (sample >= 0) std::printf("%.1f\n", us);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int main(int count, char** words) {
  const std::string what = count > 1 ? words[1] : "";
  const int samples = count > 2 ? std::atoi(words[2]) : 1;
  if (what == "policy") return policy(samples);
  if (what == "netns") return netns(samples);
  if (what == "rules") return std::puts(net::ruleset().c_str()), 0;
  return std::fputs("usage: space-bench policy|netns|rules [SAMPLES]\n", stderr), 64;
}
