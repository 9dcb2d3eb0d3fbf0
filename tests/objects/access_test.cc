// Places, keys, regions and endpoints, as the AWS command line finds them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "escape.h"
#include "quarry/objects/access.h"
#include "support/status_matchers.h"
#include "support/temporary_folder.h"

namespace quarry {
namespace {

using testing::AllOf;
using testing::HasSubstr;

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
  std::map<std::string, std::string> variables_ = {{"HOME", folder_.path()}};
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
