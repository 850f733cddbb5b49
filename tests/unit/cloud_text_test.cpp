// Encodings and the XML of object stores.

#include <gtest/gtest.h>

#include "headrace/error.h"
#include "store/cloud/digest.h"
#include "store/cloud/request.h"
#include "store/cloud/s3_xml.h"
#include "store/cloud/xml.h"
#include "tests/conformance/error_code.h"

namespace headrace {
namespace {

TEST(CloudDigest, AreThoseOfTheStandards) {
  // RFC 4231, case 2; RFC 1321; RFC 3720; RFC 4648.
  EXPECT_EQ(hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  const ConstBytes abc = bytes_of("abc");
  EXPECT_EQ(hex(md5({&abc, 1})), "900150983cd24fb0d6963f7d28e17f72");
  const std::string zeros(32, '\0');
  const ConstBytes halves[] = {bytes_of(zeros).first(10), bytes_of(zeros).subspan(10)};
  EXPECT_EQ(hex(crc32c_bytes(halves)), "8a9136aa");
  for (const auto& [text, code] :
       {std::pair{"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}}) {
    EXPECT_EQ(base64(text), code);
    EXPECT_EQ(from_base64(code), text);
  }
  EXPECT_EQ(base64url("\xfb\xff\xfe\x01"), "-__-AQ");
}

TEST(CloudDigest, EncodesAllButUnreservedCharacters) {
  EXPECT_EQ(uri_encode("a=b/c d*+~%\xc3\xa9", Slash::kept), "a%3Db/c%20d%2A%2B~%25%C3%A9");
  EXPECT_EQ(uri_encode("a/b", Slash::encoded), "a%2Fb");
  EXPECT_EQ(uri_encode_rest("a%2f%zz b", Slash::encoded), "a%2F%25zz%20b");
  EXPECT_EQ(uri_decode("a%3Db%2"), "a=b%2");
}

TEST(Xml, ReadsElementsTextsAndAttributes) {
  XmlReader xml(R"(<?xml version="1.0"?><!-- > --><r xmlns="x"><p:a k = 'v>w'>1 &lt;&#x41;&#66;
<![CDATA[<&]]></p:a><b/><c>t<d>u</d></c></r>)");
  ASSERT_TRUE(xml.next());
  EXPECT_EQ(xml.name(), "r");
  EXPECT_EQ(xml.depth(), 1);
  ASSERT_TRUE(xml.next());
  EXPECT_EQ(xml.name(), "a");
  EXPECT_EQ(xml.attribute("k"), "v>w");
  EXPECT_EQ(xml.attribute("l"), "");
  EXPECT_EQ(xml.text(), "1 <AB\n<&");
  ASSERT_TRUE(xml.next());
  EXPECT_EQ(xml.name(), "b");
  EXPECT_EQ(xml.depth(), 2);
  EXPECT_EQ(xml.text(), "");
  ASSERT_TRUE(xml.next());
  EXPECT_EQ(xml.text(), "t");
  ASSERT_TRUE(xml.next());
  EXPECT_EQ(xml.name(), "d");
  EXPECT_EQ(xml.depth(), 3);
  EXPECT_FALSE(xml.next());
}

TEST(Xml, RefusesWhatNoAnswerHas) {
  const auto read_all = [](const std::string& text) {
    XmlReader xml(text);
    while (xml.next()) xml.text();
  };
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "<a>";
  for (const std::string& bad : {std::string("<!DOCTYPE a [<!ENTITY b \"c\">]><a>&b;</a>"),
                                 std::string("<a>&b;</a>"),
                                 std::string("<a>&#x110000;</a>"),
                                 std::string("<a>&#;</a>"),
                                 std::string("<a>&amp</a>"),
                                 std::string("<a><b></a>"),
                                 std::string("</a>"),
                                 std::string("<a>"),
                                 std::string("<a"),
                                 std::string("<a b=\">"),
                                 std::string("<>"),
                                 std::string("<a><![CDATA[x</a>"),
                                 deep}) {
    EXPECT_EQ(code_of([&] { read_all(bad); }), ErrorCode::corrupt) << bad;
  }
  // Whatever is cut off anywhere ends with an error or without one, never behind its end.
  const std::string whole = "<?xml?><a b='c'><d>&amp;e</d><!-- f --><g/><h><![CDATA[i]]></h></a>";
  for (std::size_t n = 0; n < whole.size(); ++n) {
    const std::string cut = whole.substr(0, n);
    try {
      read_all(cut);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::corrupt);
    }
  }
}

TEST(S3Xml, ReadsAListBelowItsRoot) {
  const KeyRoot root("data/a.zarr/");
  const ListPage page = parse_object_list(
      bytes_of(R"(<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
<Name>b</Name><Prefix>data%2Fa.zarr%2F</Prefix><EncodingType>url</EncodingType>
<IsTruncated>true</IsTruncated><NextContinuationToken>1/a&amp;b==</NextContinuationToken>
<Contents><Key>data/a.zarr/c/a%3Db+c%2Bd%0A</Key><ETag>&quot;12&quot;</ETag><Size>7</Size>
<LastModified>2026-11-23T07:00:01.250Z</LastModified>
<Owner><ID>Key</ID></Owner></Contents>
<Contents><Key>data/a.zarr/</Key><Size>0</Size></Contents>
<Contents><Key>data/a.zarr/folder/</Key><Size>0</Size></Contents>
<Contents><Key>data/other</Key><Size>1</Size></Contents>
<CommonPrefixes><Prefix>data/a.zarr/x+y/</Prefix></CommonPrefixes></ListBucketResult>)"),
      root,
      "ETag");
  ASSERT_EQ(page.objects.size(), 1U);
  EXPECT_EQ(page.objects[0].key, "c/a=b c+d\n");
  EXPECT_EQ(page.objects[0].nbytes, 7U);
  EXPECT_EQ(page.objects[0].version, "\"12\"");
  ASSERT_TRUE(page.objects[0].written);
  EXPECT_EQ(page.objects[0].written->earliest.time_since_epoch().count(), 1795417201'000'000'000);
  EXPECT_EQ(page.objects[0].written->latest.time_since_epoch().count(), 1795417201'999'999'999);
  EXPECT_EQ(page.prefixes, std::vector<std::string>{"x y/"});
  EXPECT_EQ(page.next, "1/a&b==");
}

TEST(S3Xml, LeavesOutTimesThatAreNone) {
  for (const std::string time : {"", "yesterday", "9999-12-31T23:59:59Z", "2026-11-23"}) {
    const std::string list =
        "<ListBucketResult><Contents><Key>a</Key><Size>1</Size><LastModified>" + time +
        "</LastModified></Contents></ListBucketResult>";
    const ListPage page = parse_object_list(bytes_of(list), KeyRoot(""), "ETag");
    ASSERT_EQ(page.objects.size(), 1U);
    EXPECT_FALSE(page.objects[0].written) << time;
  }
}

TEST(S3Xml, RefusesListsThatAreNone) {
  const KeyRoot root("");
  for (const char* bad :
       {"",
        "<html><body>Sign in</body></html>",
        "<ListBucketResult><Contents><Key>a</Key><Size>-1</Size></Contents></ListBucketResult>",
        "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"}) {
    EXPECT_EQ(code_of([&] { parse_object_list(bytes_of(bad), root, "ETag"); }), ErrorCode::corrupt)
        << bad;
  }
  EXPECT_EQ(code_of([] { parse_upload_id(bytes_of("<a/>")); }), ErrorCode::corrupt);
}

TEST(S3Xml, WritesPartsAndKeys) {
  const std::string parts[] = {"\"e1\"", "\"e2\" AAAAAA=="};
  EXPECT_EQ(upload_parts_xml(parts),
            "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>&quot;e1&quot;</ETag>"
            "</Part><Part><PartNumber>2</PartNumber><ETag>&quot;e2&quot;</ETag>"
            "<ChecksumCRC32C>AAAAAA==</ChecksumCRC32C></Part></CompleteMultipartUpload>");
  const std::string keys[] = {"a<&>\"\n"};
  EXPECT_EQ(erased_objects_xml(KeyRoot("r"), keys),
            "<Delete><Quiet>true</Quiet><Object><Key>r/a&lt;&amp;&gt;&quot;&#10;</Key></Object>"
            "</Delete>");
}

TEST(S3Xml, ReadsErrorsAndIgnoresPages) {
  const ServerError error = parse_server_error(
      bytes_of("<Error><Code>AccessDenied</Code><Message>no\nRequestId:1</Message></Error>"));
  EXPECT_EQ(described(error, 403), "403 AccessDenied (no)");
  EXPECT_EQ(described(parse_server_error(bytes_of("<html><br></html>")), 502), "502");
  EXPECT_EQ(described(parse_server_error({}), 404), "404");
  const std::string_view secrets[] = {"", "xy"};
  EXPECT_EQ(scrub("axyxyb", secrets), "a******b");
}

}  // namespace
}  // namespace headrace
