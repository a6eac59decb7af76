"""The OpenAPI document, written from the tables that the service runs on."""
