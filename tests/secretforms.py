"""Secrets of every kind, the notations in which programs write them, and lines that contain them."""

from __future__ import annotations

VALUES = {
    "ngc": "bmdjLWtleS0xMjM0NTY3ODkwMTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDEyMzQ1",
    "nvapi": "nvapi-AbCdEf0123456789AbCdEf0123456789_-xyz",
    "hugging-face": "hf_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789",
    "aws-secret": "aBcDeFgHiJ/kLmNoP0123/456789qRsTuVwXyZaB",
    "aws-id": "AKIAABCDEFGHIJKLMNOP",
    "jwt": "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJl",
    "hex": "0123456789abcdef0123456789abcdef01234567",
    "password": "Sup3rS3cretPw",
    "github": "ghp_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789",
    "slack": "xoxb-1234567890-abcdefghij",
    "openai": "sk-proj-AbCdEfGhIjKlMnOpQrStUvWxYz0123456789",
    "pem": "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj",
}
WRITTEN = [
    "AWS_SECRET_ACCESS_KEY={}",
    "WANDB_API_KEY = {}",
    '"NGC_API_KEY": "{}"',
    "{{'HF_TOKEN': '{}', 'PATH': '/bin'}}",
    "environ([('DB_PASSWORD', '{}'), ('HOME', '/root')])",
    "mpirun -x MY_TOKEN={} -np 2",
    "--password {} --verbose",
    "--token={}",
    "Authorization: Bearer {}",
    "https://user:{}@registry.example/x",
    "https://{}@git.example/x/y",
    "https://x.example/log?access_token={}&page=1",
    "https://bucket.example/k?X-Amz-Signature={}",
    "password: {}",
    "<password>{}</password>",
    '{{"name": "HF_TOKEN", "value": "{}"}}',
    "- name: API_SECRET value: {}",
    "client-key-data: {}",
    "docker login -u me -p {} registry.example",
    "curl -u user:{} https://x.example",
    "X-Api-Key: {}",
    "-----BEGIN RSA PRIVATE KEY----- {} -----END RSA PRIVATE KEY-----",
    "Password is {}",
    '\\"HF_TOKEN\\":\\"{}\\"',
    "token%3D{}",
    "AccountName=x;AccountKey={};EndpointSuffix=y",
]
LINES = [
    "a:1:1 [0] x.cc:1 NCCL WARN Duplicate GPU detected {}\na:1:1 [0] NCCL INFO init.cc:1 -> 5\n",
    "a:1:1 [0] x.cc:1 NCCL WARN whatever {}\na:1:1 [0] NCCL INFO init.cc:1 -> 5\n",
    "a:1:1 [0] NCCL INFO {}\n",
    "a:1:1 [0] NCCL INFO NCCL_NET set by environment to {}.\na:1:1 [0] NCCL INFO Using network Socket\n",
    "a:1:1 [0] NCCL INFO NCCL_CONF_TOKEN set by environment to {}.\n",
    "a:1:1 [0] NCCL INFO Using network {}\n",
    "a:1:1 [0] NCCL INFO NET/Plugin: Loaded net plugin {} (v8)\n",
    "Test NCCL failure common.cu:1 {}\n",
    "Last error:\n{} Connection refused NCCL\n",
    "#  Rank  0 Group  0 Pid 1 on host device  0 [0x1b] {}\n",
    "srun: error: node: task 3: Exited with exit code 1 {}\n",
    "CANCELLED AT x DUE TO TIME LIMIT {}\n",
    "{} a:1:1 [0] x.cc:1 NCCL WARN Duplicate GPU detected\n",
]


def shown(value: str, text: str) -> bool:
    """Say whether a text contains a value, or its first half: wrapped, escaped or truncated."""
    flat = text.replace("\\", "").replace("\n", "").replace(" ", "")
    return value in text or value[: max(12, len(value) // 2)] in flat
