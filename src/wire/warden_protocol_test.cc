#include "wire/warden_protocol.h"

#include <gtest/gtest.h>
#include <thread>

#include "base/encoding.h"
#include "base/file.h"
#include "base/unix_socket.h"
#include "wire/warden_client.h"

namespace space::wire {
namespace {

const std::string kVm = "abcdefghij0123456789abcd";

template <class T>
std::string bytes_of(const T& packet) {
  return {reinterpret_cast<const char*>(&packet), sizeof packet};
}

WardenRequest start_request() {
  WardenRequest request{.call = WardenCall::start_vmm};
  put_text(request.vm, kVm);
  put_text(request.build, std::string(64, 'a'));
  return request;
}

TEST(WardenProtocol, ArgumentsComeBackAsTheyWere) {
  WardenRequest request = start_request();
  const std::vector<std::string> argv{"-S", "", "a b\n\"c", std::string(9000, 'x')};
  ASSERT_TRUE(put_argv(request, argv));
  auto parsed = parse_warden_request(bytes_of(request));
  ASSERT_TRUE(parsed) << describe(parsed.error());
  EXPECT_EQ(split_argv(*parsed), argv);
  EXPECT_EQ(text_of(parsed->vm), kVm);
}

TEST(WardenProtocol, ArgumentsHaveBounds) {
  WardenRequest request = start_request();
  EXPECT_EQ(put_argv(request, {std::string(kWardenArgvBytes, 'x')}).error().code, "argument_list_too_long");
  EXPECT_TRUE(put_argv(request, {std::string(kWardenArgvBytes - 1, 'x')}));
  EXPECT_TRUE(parse_warden_request(bytes_of(request)));
  EXPECT_EQ(put_argv(request, std::vector<std::string>(kWardenMaxArguments + 1)).error().code, "argument_list_too_long");
  EXPECT_EQ(put_argv(request, {std::string("a\0b", 3)}).error().code, "bad_argument");
}

TEST(WardenProtocol, RefusesEverythingThatIsNotExact) {
  auto refused = [](auto&& change) {
    WardenRequest request = start_request();
    (void)put_argv(request, {"-S"});
    change(request);
    return !parse_warden_request(bytes_of(request));
  };
  EXPECT_FALSE(refused([](WardenRequest&) {}));
  EXPECT_TRUE(refused([](WardenRequest& r) { r.version = kWardenVersion + 1; }));
  EXPECT_TRUE(refused([](WardenRequest& r) { r.call = WardenCall{0}; }));
  EXPECT_TRUE(refused([](WardenRequest& r) { r.call = WardenCall{99}; }));
  EXPECT_TRUE(refused([](WardenRequest& r) { put_text(r.vm, "../../../../../etc/xx"); }));
  EXPECT_TRUE(refused([](WardenRequest& r) { put_text(r.vm, ""); }));
  EXPECT_TRUE(refused([](WardenRequest& r) { r.vm[30] = 'x'; }));
  EXPECT_TRUE(refused([](WardenRequest& r) { put_text(r.build, "../x"); }));
  EXPECT_TRUE(refused([](WardenRequest& r) { r.build[0] = 'A'; }));
  EXPECT_TRUE(refused([](WardenRequest& r) { r.argv_count = 2; }));
  EXPECT_TRUE(refused([](WardenRequest& r) { r.argv_bytes = 2; }));
  EXPECT_TRUE(refused([](WardenRequest& r) { r.argv_bytes = kWardenArgvBytes + 1; }));
  EXPECT_TRUE(refused([](WardenRequest& r) { r.argv[100] = 'x'; }));
  EXPECT_TRUE(refused([](WardenRequest& r) { r.call = WardenCall::destroy; }));  // which has neither build nor arguments
  EXPECT_FALSE(parse_warden_request(bytes_of(WardenRequest{}) + "x"));
  EXPECT_FALSE(parse_warden_request(""));
  EXPECT_TRUE(parse_warden_request(bytes_of(WardenRequest{})));
}

TEST(WardenProtocol, ErrorsTravelWhole) {
  WardenReply reply;
  put_error(reply, {ErrorKind::conflict, "vm_exists", std::string(1000, 'm'), "choose another id"});
  auto parsed = parse_warden_reply(bytes_of(reply));
  ASSERT_TRUE(parsed);
  const Error error = error_of(*parsed);
  EXPECT_EQ(error.kind, ErrorKind::conflict);
  EXPECT_EQ(error.code, "vm_exists");
  EXPECT_EQ(error.message.size(), sizeof reply.message);
  EXPECT_EQ(error.next, "choose another id");
  reply.failed = 100;
  EXPECT_FALSE(parse_warden_reply(bytes_of(reply)));
  reply.failed = 0;
  reply.count = kWardenListEntries + 1;
  EXPECT_FALSE(parse_warden_reply(bytes_of(reply)));
}

class FakeWarden {
 public:
  FakeWarden() : folder_(*TempDir::make("/tmp", "space-wire-test-")), listener_(listen()) {}
  std::string path() const { return (folder_.path() / "w").string(); }
  Fd listen() const { return *listen_unix(path(), SOCK_SEQPACKET, 0600); }
  Fd accept() { return *accept_unix(listener_); }
  void restart() { listener_ = listen(); }

 private:
  TempDir folder_;
  Fd listener_;
};

TEST(WardenClient, DialsAgainWhenTheWardenWasReplaced) {
  FakeWarden warden;
  auto client = *WardenClient::connect(warden.path());
  warden.accept().reset();
  warden.restart();
  std::thread answering([&] {
    Fd peer = warden.accept();
    (void)receive_packet(peer, sizeof(WardenRequest));
    (void)send_packet(peer, as_bytes(bytes_of(WardenReply{})));
  });
  auto result = client->destroy(kVm);
  answering.join();
  EXPECT_TRUE(result) << describe(result.error());
}

TEST(WardenClient, AsksOnceMoreWhenTheWardenDiesUnderACall) {
  FakeWarden warden;
  auto client = *WardenClient::connect(warden.path());
  std::thread answering([&] {
    {
      const Fd dies = warden.accept();
      (void)receive_packet(dies, sizeof(WardenRequest));
    }
    const Fd next = warden.accept();
    (void)receive_packet(next, sizeof(WardenRequest));
    (void)send_packet(next, as_bytes(bytes_of(WardenReply{})));
    // What may have been made is not made once more.
    (void)receive_packet(next, sizeof(WardenRequest));
  });
  auto weight = client->set_cpu_weight(kVm, 10);
  auto net = client->make_net(kVm);
  answering.join();
  EXPECT_TRUE(weight) << describe(weight.error());
  ASSERT_FALSE(net);
  EXPECT_EQ(net.error().code, "warden_unavailable");
}

TEST(WardenClient, GarbageIsAnErrorAndEndsTheConnection) {
  FakeWarden warden;
  auto client = *WardenClient::connect(warden.path());
  std::thread answering([&] {
    Fd peer = warden.accept();
    (void)receive_packet(peer, sizeof(WardenRequest));
    (void)send_packet(peer, as_bytes("garbage"));
  });
  auto result = client->list();
  answering.join();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, "warden_unavailable");
}

TEST(WardenClient, RefusesBadArgumentsItself) {
  FakeWarden warden;
  auto client = *WardenClient::connect(warden.path());
  EXPECT_EQ(client->destroy("no/id").error().code, "bad_vm_id");
  EXPECT_EQ(client->guest_sockets(kVm, 9).error().code, "bad_count");
  const std::vector<int> many(kWardenMaxVmmFds + 1, 0);
  EXPECT_EQ(client->start_vmm(kVm, "", {}, {}, many, Fd()).error().code, "too_many_descriptors");
}

}  // namespace
}  // namespace space::wire
