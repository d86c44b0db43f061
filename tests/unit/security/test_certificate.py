"""Certificates are read, and their names written as Java writes them."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import Name, NameAttribute, RelativeDistinguishedName
from cryptography.x509.name import _ASN1Type as StringType
from cryptography.x509.oid import NameOID

from ottla.security.certificate import Certificate, distinguished_name, elements

KEY = ec.generate_private_key(ec.SECP256R1())
UNTIL = datetime(2031, 2, 3, 4, 5, 6, tzinfo=UTC)


def certificate(*attributes: NameAttribute, until: datetime = UNTIL, hosts=("a", "b")) -> bytes:
    """One that has signed itself, in DER."""
    name = Name(attributes)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(Name([NameAttribute(NameOID.COMMON_NAME, "issuer")]))
        .public_key(KEY.public_key())
        .serial_number(7)
        .not_valid_before(datetime(2001, 1, 1, tzinfo=UTC))
        .not_valid_after(until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    )
    if hosts:
        names = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def common_name(text: str, kind: StringType = StringType.UTF8String) -> NameAttribute:
    return NameAttribute(NameOID.COMMON_NAME, text, kind)


@pytest.mark.parametrize(
    ("attributes", "java"),
    [
        (
            [
                NameAttribute(NameOID.COUNTRY_NAME, "DE"),
                NameAttribute(NameOID.ORGANIZATION_NAME, "Example, Inc."),
                NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "a+b=c"),
                common_name("alice"),
            ],
            r"CN=alice,OU=a\+b\=c,O=Example\, Inc.,C=DE",
        ),
        ([common_name('  # x \\ "q" <y>; #z  ')], r"CN=\ \ \# x \\ \"q\" \<y\>\; \#z\ \ "),
        ([common_name("#lead")], r"CN=\#lead"),
        ([common_name("   ")], r"CN=\ \ \ "),
        ([common_name("\rx\n\t")], "CN=\\\rx\n\t"),
        ([common_name("Zoë Ångström 日本")], "CN=Zoë Ångström 日本"),
        ([common_name("a\0b")], r"CN=a\00b"),
        ([common_name("Zoë", StringType.BMPString)], "CN=\\00Z\\00o\\00\ufffd"),
        ([common_name("abc", StringType.T61String)], "CN=abc"),
        ([common_name("ab", StringType.UniversalString)], "CN=#1c080000006100000062"),
        (
            [NameAttribute(NameOID.EMAIL_ADDRESS, "a@b.c"), common_name("x")],
            "CN=x,1.2.840.113549.1.9.1=#16056140622e63",
        ),
        (
            [
                NameAttribute(NameOID.SERIAL_NUMBER, "17"),
                NameAttribute(NameOID.TITLE, "Dr"),
                NameAttribute(NameOID.STREET_ADDRESS, "1 Road"),
                NameAttribute(NameOID.DOMAIN_COMPONENT, "example"),
                NameAttribute(NameOID.USER_ID, "u1"),
                NameAttribute(NameOID.LOCALITY_NAME, "L"),
                NameAttribute(NameOID.STATE_OR_PROVINCE_NAME, "S"),
                NameAttribute(x509.ObjectIdentifier("2.999.300"), "z"),
            ],
            "2.999.300=#0c017a,ST=S,L=L,UID=u1,DC=example,STREET=1 Road,2.5.4.12=#0c024472,"
            "2.5.4.5=#13023137",
        ),
        ([], ""),
    ],
)
def test_a_name_is_written_as_java_writes_it(attributes, java):
    """The expected texts are those of Java 17 for the same certificates."""
    assert Certificate.parse(certificate(*attributes)).subject == java


def test_a_part_with_several_values_keeps_them_together():
    """The values have a plus between them, in the order in which they are encoded."""
    part = RelativeDistinguishedName(
        [common_name("cn"), NameAttribute(NameOID.USER_ID, "u")],
    )
    name = Name([RelativeDistinguishedName([common_name("o")]), part])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name)
    builder = builder.public_key(KEY.public_key()).serial_number(1)
    builder = builder.not_valid_before(UNTIL).not_valid_after(UNTIL)
    der = builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.DER)

    assert Certificate.parse(der).subject == "CN=cn+UID=u,CN=o"


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ([common_name("x")] * 25, "a name has more than 24 attributes"),
        ([common_name(" " * 60)] * 16, "a name of 11"),
    ],
    ids=["many", "long"],
)
def test_a_name_that_is_longer_than_names_are_is_refused(attributes, said):
    """A client may choose its name: rules that look for parts of it would take seconds."""
    with pytest.raises(ValueError, match=said):
        Certificate.parse(certificate(*attributes))


def test_an_attribute_of_a_very_long_type_is_refused():
    """Its number would have as many digits, and each takes longer than the one before."""
    oid = b"\x06\x82\x75\x30" + b"\x55" + b"\xff" * 29_998 + b"\x01"
    name = b"\x30\x84" + len(oid).to_bytes(4) + oid

    with pytest.raises(ValueError, match="a name of 30010 bytes: it may have 1024"):
        distinguished_name(name)


def test_a_name_of_the_longest_kind_is_read():
    """Twenty-four attributes, of a kilobyte in all."""
    subject = Certificate.parse(certificate(*[common_name("x" * 30)] * 24)).subject

    assert subject == ",".join(["CN=" + "x" * 30] * 24)


@pytest.mark.parametrize("year", [1999, 2031, 2049, 2051])
def test_the_end_of_validity_is_read_in_both_forms(year):
    """Two digits of the year stand for 1950 to 2049, and four for what follows."""
    until = UNTIL.replace(year=year)
    read = Certificate.parse(certificate(until=max(until, datetime(2001, 1, 2, tzinfo=UTC))))

    assert read.not_after_ms == max(until.timestamp(), 978393600) * 1000


def test_alternative_names_are_compared():
    """Their order does not count, and a certificate may have none."""
    names = [
        Certificate.parse(certificate(hosts=hosts)).alternative_names
        for hosts in (("a", "b"), ("b", "a", "c"), ())
    ]

    assert names[0] < names[1]
    assert names[2] == frozenset()


def test_certificates_of_an_authority_are_read(certificates):
    """Made by another tool, as PEM."""
    text = Path(certificates.alice).read_text()
    pem = text[text.index("-----BEGIN CERTIFICATE") : text.index("-----END CERTIFICATE-----") + 25]

    read = Certificate.parse(ssl.PEM_cert_to_DER_cert(pem))
    assert read.subject == r"CN=alice,OU=Clients,O=Example\, Inc."


def test_what_is_no_certificate_is_refused():
    """Every cut of one is a ValueError, and so are other values in DER."""
    whole = certificate(common_name("alice"))
    for end in range(len(whole)):
        with pytest.raises(ValueError, match="not an X"):
            Certificate.parse(whole[:end])
    for other in (b"", b"\x30\x00", b"\x30\x02\x30\x00", b"\x1f\x00", b"\x30\x80", b"\x02\x01\x00"):
        with pytest.raises(ValueError, match="not an X"):
            Certificate.parse(other)


def test_lengths_of_der_are_bounded():
    """Four bytes of a length are enough for any certificate."""
    assert [each.content for each in elements(b"\x04\x81\x01x\x05\x00")] == [b"x", b""]
    with pytest.raises(ValueError, match="too large"):
        list(elements(b"\x04\x85\0\0\0\0\x01x"))
