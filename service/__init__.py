"""The HTTP service: resident models behind designs, exports, calibrations and verifications.

`app` joins the parts; `docs/architecture.md` follows a request through them, and `docs/http-api.md` is the contract.
"""
