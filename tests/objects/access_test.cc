// Places, keys, regions and endpoints, as the AWS command line finds them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "escape.h"
#include "metadata_keys.h"
#include "quarry/objects/access.h"
#include "support/status_matchers.h"
#include "support/temporary_folder.h"

namespace quarry {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(ObjectPlaceTest, AddressesAreBucketAndPrefix) {
  ASSERT_OK_AND_ASSIGN(const ObjectPlace place, ParseObjectPlace("s3://my-bucket/a/graph.db/"));
  EXPECT_EQ(place.bucket, "my-bucket");
  EXPECT_EQ(place.prefix, "a/graph.db");
  EXPECT_EQ(place.address(), "s3://my-bucket/a/graph.db");
  for (const char* const wrong : {"s3://", "s3://b/x", "s3://Bucket/x", "s3://bucket", "s3://bucket/",
                                  "s3://bucket/a//b", "s3://bucket/../x", "s3:/bucket/x", "/s3/x"}) {
    EXPECT_THAT(ParseObjectPlace(wrong), IsStatus(Code::kUsage, HasSubstr(wrong))) << wrong;
  }
}

class AccessTest : public testing::Test {
 protected:
  Result<ObjectAccess> Resolve(const std::string& bucket = "bucket") {
    return ResolveObjectAccess({bucket, "p"}, [this](const char* name) -> std::optional<std::string> {
      const auto found = variables_.find(name);
      return found == variables_.end() ? std::nullopt : std::optional(found->second);
    });
  }

  TemporaryFolder folder_{"access"};
  std::map<std::string, std::string> variables_ = {{"HOME", folder_.path()},
                                                   {"AWS_EC2_METADATA_DISABLED", "true"}};
};

TEST_F(AccessTest, TheEnvironmentComesFirst) {
  folder_.Write(".aws/credentials", "[default]\naws_access_key_id = FILE\naws_secret_access_key = S\n");
  variables_.insert(
      {{"AWS_ACCESS_KEY_ID", "ENV"}, {"AWS_SECRET_ACCESS_KEY", "T"}, {"AWS_SESSION_TOKEN", "U"}});
  ASSERT_OK_AND_ASSIGN(const ObjectAccess access, Resolve());
  EXPECT_EQ(access.key_id + access.secret + access.token, "ENVTU");
  EXPECT_EQ(access.region, "us-east-1");
  EXPECT_EQ(access.UrlOf({"bucket", "p"}, "p/x y"), "https://bucket.s3.us-east-1.amazonaws.com/p/x%20y");
  variables_.erase("AWS_SECRET_ACCESS_KEY");
  EXPECT_THAT(Resolve(), IsStatus(Code::kInvalidArgument, HasSubstr("AWS_SECRET_ACCESS_KEY is not")));
}

TEST_F(AccessTest, ProfilesOfBothFiles) {
  folder_.Write(
      ".aws/credentials",
      "# comment\n[default]\naws_access_key_id=D\naws_secret_access_key=E\n[work]\naws_access_key_id = W\n"
      "aws_secret_access_key = X/+=\naws_session_token = Y\n");
  folder_.Write(".aws/config",
                "[default]\nregion = eu-central-1\n[profile work]\nregion = ap-south-1\nservices = mine\n"
                "endpoint_url = http://other\n[services mine]\ndynamodb =\n  endpoint_url = http://no\ns3 =\n"
                "  endpoint_url = http://127.0.0.1:9000/\n");
  ASSERT_OK_AND_ASSIGN(ObjectAccess access, Resolve("with.dots"));
  EXPECT_EQ(access.key_id, "D");
  EXPECT_EQ(access.endpoint, "https://s3.eu-central-1.amazonaws.com");
  EXPECT_TRUE(access.path_style);
  variables_["AWS_PROFILE"] = "work";
  ASSERT_OK_AND_ASSIGN(access, Resolve());
  EXPECT_EQ(access.key_id + access.secret + access.token, "WX/+=Y");
  EXPECT_EQ(access.region, "ap-south-1");
  EXPECT_EQ(access.endpoint, "http://127.0.0.1:9000");
  variables_["AWS_ENDPOINT_URL"] = "http://general";
  ASSERT_OK_AND_ASSIGN(access, Resolve());
  EXPECT_EQ(access.endpoint, "http://general");
  variables_["AWS_ENDPOINT_URL_S3"] = "https://own:1";
  variables_["AWS_REGION"] = "r";
  variables_["AWS_CA_BUNDLE"] = "/ca.pem";
  ASSERT_OK_AND_ASSIGN(access, Resolve());
  EXPECT_EQ(access.UrlOf({"bucket", "p"}, "p/x"), "https://own:1/bucket/p/x");
  EXPECT_EQ(access.region + access.ca_bundle, "r/ca.pem");
  variables_["AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"] = "true";
  ASSERT_OK_AND_ASSIGN(access, Resolve());
  EXPECT_EQ(access.endpoint, "https://bucket.s3.r.amazonaws.com");
}

TEST_F(AccessTest, WhatIsMissingOrWrongIsNamed) {
  EXPECT_THAT(Resolve(), IsStatus(Code::kNotFound,
                                  AllOf(HasSubstr("AWS_ACCESS_KEY_ID"), HasSubstr(".aws/credentials"))));
  variables_["AWS_PROFILE"] = "none";
  EXPECT_THAT(Resolve(), IsStatus(Code::kInvalidArgument, HasSubstr("AWS_PROFILE=none")));
  variables_.erase("AWS_PROFILE");
  folder_.Write(".aws/config", "[default]\nsso_session = x\n");
  EXPECT_THAT(Resolve(), IsStatus(Code::kUnsupported, HasSubstr("sso_session")));
  folder_.Write(".aws/config", "[default]\nSECRETWORD\n");
  EXPECT_THAT(Resolve(),
              IsStatus(Code::kInvalidArgument, AllOf(HasSubstr("config: line 2"), Not(HasSubstr("SECRET")))));
  folder_.Write(".aws/config", "[default]\naws_access_key_id = x\n");
  EXPECT_THAT(Resolve(), IsStatus(Code::kInvalidArgument, HasSubstr("no aws_secret_access_key")));
  variables_.insert(
      {{"AWS_ACCESS_KEY_ID", "a"}, {"AWS_SECRET_ACCESS_KEY", "b"}, {"AWS_ENDPOINT_URL", "ftp://x"}});
  EXPECT_THAT(Resolve(), IsStatus(Code::kInvalidArgument, HasSubstr("ftp://x")));
  variables_["AWS_ENDPOINT_URL"] = "http://x";
  variables_["AWS_ACCESS_KEY_ID"] = "a\nHost: evil";
  EXPECT_THAT(Resolve(), IsStatus(Code::kInvalidArgument, HasSubstr("access key")));
}

// The metadata service of a machine, and of a container: one answer for each connection, as the test says.
class MetadataServer {
 public:
  using Answer = std::function<std::pair<int, std::string>(const std::string& request)>;  // status, body
  explicit MetadataServer(Answer answer) : answer_(std::move(answer)) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(listener_, 16), 0);
    socklen_t bytes = sizeof(address);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
    endpoint_ = fmt::format("http://127.0.0.1:{}", ntohs(address.sin_port));
    thread_ = std::thread([this] { Serve(); });
  }
  ~MetadataServer() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  const std::string& endpoint() const { return endpoint_; }

 private:
  void Serve() {
    while (true) {
      const int peer = accept(listener_, nullptr, nullptr);
      if (peer < 0) return;
      std::string request;
      char piece[4096];
      while (request.find("\r\n\r\n") == std::string::npos) {
        const ssize_t got = recv(peer, piece, sizeof(piece), 0);
        if (got <= 0) break;
        request.append(piece, static_cast<size_t>(got));
      }
      const auto [status, body] = answer_(request);
      const std::string text = fmt::format(
          "HTTP/1.1 {} x\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}", status, body.size(), body);
      if (status > 0) {
        EXPECT_EQ(send(peer, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
      }
      close(peer);
    }
  }

  const Answer answer_;
  int listener_ = -1;
  std::string endpoint_;
  std::thread thread_;
};

constexpr const char* kHandedOut =
    R"({"Code": "Success", "Other": {"AccessKeyId": "no"}, "AccessKeyId" : "ID", "SecretAccessKey":"S\/+=",
        "Token": "T", "Expiration" : "2030-01-02T03:04:05Z"})";

// A machine whose role is "role"; keys for those alone who bring the session's token.
std::pair<int, std::string> AnswerOfMachine(const std::string& request) {
  const bool session = request.find("X-aws-ec2-metadata-token: SESSION\r\n") != std::string::npos;
  if (request.starts_with("PUT /latest/api/token ")) {
    return {request.find("X-aws-ec2-metadata-token-ttl-seconds: 21600") == std::string::npos ? 400 : 200,
            "SESSION"};
  }
  if (!session) return {401, ""};
  if (request.starts_with("GET /latest/meta-data/iam/security-credentials/ ")) return {200, "role"};
  if (request.starts_with("GET /latest/meta-data/iam/security-credentials/role ")) return {200, kHandedOut};
  return {404, ""};
}

TEST_F(AccessTest, AMachineHandsOutKeys) {
  const MetadataServer machine(AnswerOfMachine);
  variables_ = {{"HOME", folder_.path()}, {"AWS_EC2_METADATA_SERVICE_ENDPOINT", machine.endpoint() + "/"}};
  ASSERT_OK_AND_ASSIGN(const ObjectAccess access, Resolve());
  EXPECT_EQ(access.key_id + " " + access.secret + " " + access.token, "ID S/+= T");
  EXPECT_EQ(access.expires, 1893553445);
  ASSERT_OK_AND_ASSIGN(const ObjectAccess next, access.renew());
  EXPECT_EQ(next.key_id + next.endpoint, "ID" + next.endpoint);
  variables_["AWS_EC2_METADATA_DISABLED"] = "true";
  EXPECT_THAT(Resolve(), IsStatus(Code::kNotFound, HasSubstr("no credentials")));
  variables_.erase("AWS_EC2_METADATA_DISABLED");
  // Files come before it.
  folder_.Write(".aws/credentials", "[default]\naws_access_key_id = FILE\naws_secret_access_key = S\n");
  ASSERT_OK_AND_ASSIGN(const ObjectAccess of_file, Resolve());
  EXPECT_EQ(of_file.key_id, "FILE");
  EXPECT_FALSE(of_file.renew);
}

TEST_F(AccessTest, AContainerHandsOutKeysBeforeItsMachine) {
  std::string seen;
  const MetadataServer container([&](const std::string& request) {
    seen = request;
    return std::pair(request.starts_with("GET /keys?x=1 ") ? 200 : 404, std::string(kHandedOut));
  });
  variables_ = {{"HOME", folder_.path()},
                {"AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1"},
                {"AWS_CONTAINER_CREDENTIALS_FULL_URI", container.endpoint() + "/keys?x=1"},
                {"AWS_CONTAINER_AUTHORIZATION_TOKEN", "of the environment"},
                {"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", folder_.Write("token", "of the file\n")}};
  ASSERT_OK_AND_ASSIGN(const ObjectAccess access, Resolve());
  EXPECT_EQ(access.key_id, "ID");
  EXPECT_THAT(seen, HasSubstr("Authorization: of the file\r\n"));
  variables_.erase("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
  ASSERT_OK(Resolve());
  EXPECT_THAT(seen, HasSubstr("Authorization: of the environment\r\n"));
  variables_["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = container.endpoint() + "/other";
  EXPECT_THAT(Resolve(), IsStatus(Code::kIoError, AllOf(HasSubstr("/other"), HasSubstr("404"))));
  for (const char* const away : {"http://example.org/keys", "http://127.0.0.1.example.org/",
                                 "http://169.254.170.20/", "ftp://127.0.0.1/"}) {
    variables_["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = away;
    EXPECT_THAT(Resolve(), IsStatus(Code::kInvalidArgument, HasSubstr(away)));
  }
}

TEST_F(AccessTest, WhatIsHandedOutIsCheckedAndNeverShown) {
  std::string body;
  int status = 200;
  const MetadataServer container([&](const std::string&) { return std::pair(status, body); });
  variables_ = {{"HOME", folder_.path()}, {"AWS_CONTAINER_CREDENTIALS_FULL_URI", container.endpoint()}};
  for (const char* const wrong :
       {"", "{", R"({"AccessKeyId": "HIDDEN"})",
        R"({"AccessKeyId": "HIDDEN", "SecretAccessKey": "HIDDEN\nHost: evil"})",
        R"({"x": {"AccessKeyId": "HIDDEN", "SecretAccessKey": "HIDDEN"}})",
        R"({"AccessKeyId": "HIDDEN", "SecretAccessKey": "HIDDEN", "Expiration": "soon"})",
        R"(["AccessKeyId", "SecretAccessKey"])"}) {
    body = wrong;
    EXPECT_THAT(Resolve(),
                IsStatus(Code::kIoError, AllOf(HasSubstr(container.endpoint()), Not(HasSubstr("HIDDEN")))))
        << wrong;
  }
  body = kHandedOut;
  for (size_t i = 0; i < body.size(); i++) static_cast<void>(JsonText(body.substr(0, i), "Token"));
  status = 0;  // no answer
  EXPECT_THAT(Resolve(), IsStatus(Code::kIoError, HasSubstr("no answer")));
  variables_["AWS_METADATA_SERVICE_NUM_ATTEMPTS"] = "none";
  EXPECT_THAT(Resolve(), IsStatus(Code::kInvalidArgument, HasSubstr("NUM_ATTEMPTS")));
  EXPECT_EQ(UtcSeconds("2024-02-29T00:00:00Z"), 1709164800);
  EXPECT_EQ(UtcSeconds("2024-02-29T00:00:00.123Z"), 1709164800);
  EXPECT_EQ(UtcSeconds("2024-02-29 00:00:00"), std::nullopt);
}

TEST(EscapeTest, ElementsAndEntities) {
  const std::string xml =
      "<?xml?><R><Keys>no</Keys><Key a=\"b\">x&amp;&lt;&#65;&#x20ac;</Key><E/><Key>2</Key></R>";
  EXPECT_EQ(XmlText(xml, "Key"), "x&<A\u20ac");
  EXPECT_EQ(XmlText(xml, "E"), "");
  EXPECT_EQ(XmlText(xml, "F"), std::nullopt);
  EXPECT_EQ(XmlElements(xml, "Key").size(), 2U);
  for (size_t i = 0; i < xml.size(); i++) static_cast<void>(XmlElements(xml.substr(0, i), "Key"));
  EXPECT_EQ(PercentEncoded("a/b c~+\xff"), "a%2Fb%20c~%2B%FF");
}

}  // namespace
}  // namespace quarry
