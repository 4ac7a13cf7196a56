"""Request and response bodies of single sign-on."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field

from coresteer.auth.schemas import Me
from coresteer.inputs import STORABLE, RequestBody, validation_error


def _check_path(text: str) -> str:
    """Return a path of this page, and nothing that a browser takes for another site's address."""
    is_path = text.startswith("/") and not text.startswith("//") and "\\" not in text
    if not is_path or any(character < " " for character in text):
        raise validation_error("The page to return to must be a path of this site, such as /fleet.")
    return text


ReturnTo = Annotated[str, Field(max_length=1000), STORABLE, AfterValidator(_check_path)]


class SignInStart(RequestBody):
    """Where to return after signing in: a path of this site."""

    return_to: ReturnTo = "/fleet"


class IssuerAddress(BaseModel):
    """An address of the issuer to open in the browser; None if the issuer has no page to sign out."""

    url: str | None


class SignInAnswer(RequestBody):
    """What the issuer added to this site's address /signed-in; error, error_description: why it refused."""

    code: Annotated[str, Field(max_length=4000)] | None = None
    state: Annotated[str, Field(max_length=200)]
    error: Annotated[str, Field(max_length=200)] | None = None
    error_description: Annotated[str, Field(max_length=2000)] | None = None


class SsoSignedIn(Me):
    """The signed-in user. return_to: the path of this site where the sign-in began."""

    return_to: str
