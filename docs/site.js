// In the search a leading dash means "without"; here it begins the name of a flag.
document.addEventListener("input", (event) => {
  const field = event.target;
  if (field.matches(".md-search__input")) field.value = field.value.replace(/(^|\s)-+/g, "$1");
}, true);
